#include "trainyard/train/checkpoint/position_embedding.h"

#include <fstream>
#include <sstream>

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/tensors/safetensors.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/models/flags.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::train::position_embedding_test {
namespace {

constexpr int64_t kChannels = 2;

// What tools/golden/position_embedding.py begins with.
at::Tensor embedding_of(nn::Size2d patches) {
  at::Tensor result = at::empty({1, 1 + patches.height * patches.width, kChannels});
  for (int64_t i = 0; i < result.numel(); ++i) {
    result.data_ptr<float>()[i] = static_cast<float>(37 * i % 101) / 50 - 1;
  }
  return result;
}

TEST(PositionEmbedding, IsInterpolatedAsTorchvisionDoes) {
  std::ifstream file(TRAINYARD_SOURCE_DIR "/trainyard/train/testdata/position_embedding.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    std::istringstream words(line);
    std::string before, after;
    words >> before >> after;
    const PositionGrid grid{
        .parameter = "p", .patches = models::parse_image_size(after), .saved = models::parse_image_size(before)};
    const at::Tensor result = interpolate_positions(embedding_of(grid.saved), grid).contiguous();
    ASSERT_EQ(result.numel(), kChannels * (1 + grid.patches.height * grid.patches.width));
    for (int64_t i = 0; i < result.numel(); ++i) {
      float expected = 0;
      ASSERT_TRUE(words >> expected);
      EXPECT_NEAR(result.const_data_ptr<float>()[i], expected, 1e-5) << line.substr(0, 12) << i;
    }
  }
  EXPECT_EQ(cases, 6);
}

TEST(PositionEmbedding, GridOfAFileIsKnownOrTheModelsOrASquare) {
  PositionGrid grid{.parameter = "p", .patches = {3, 4}};
  EXPECT_EQ(saved_patches({1, 13, 8}, grid), nn::Size2d(3, 4));
  EXPECT_EQ(saved_patches({1, 10, 8}, grid), nn::Size2d(3, 3));
  EXPECT_EQ(saved_patches({1, 12, 8}, grid), nn::Size2d(0)) << "11 patches are no square";
  EXPECT_EQ(saved_patches({1, 1, 8}, grid), nn::Size2d(0));
  EXPECT_EQ(saved_patches({13, 8}, grid), nn::Size2d(0));
  EXPECT_EQ(saved_patches({}, grid), nn::Size2d(0));
  grid.saved = {6, 2};
  EXPECT_EQ(saved_patches({1, 13, 8}, grid), nn::Size2d(6, 2)) << "as many patches, in other rows";
}

nn::Graph small_transformer(nn::Size2d image, int64_t classes = 3) {
  nn::GraphBuilder b({.image = {3, image.height, image.width}, .name = "small"});
  auto x = b.convolution("patches", b.input(), {.out_channels = kChannels, .kernel = 4, .stride = 4});
  x = b.position_embedding("positions", b.class_token("token", x, {}), {});
  return b.build(b.linear("head", b.global_average_pool("pool", x), {.out_features = classes}));
}

struct Model {
  explicit Model(const nn::Graph& graph) {
    executor = nn::make_executor("reference", graph, {.mode = nn::Mode::kInference, .parameters = &set});
    set.allocate();
    set.initialize(1);
  }
  at::Tensor positions() { return set.value(*set.find("positions")); }
  nn::ParameterSet set;
  std::unique_ptr<nn::Executor> executor;
};

// A file for 16 x 16 pixels and 4 x 4 patches, whose metadata say nothing.
TEST(PositionEmbedding, WeightsOfAFileFitImagesOfAnotherSize) {
  const core::TempDir temp;
  const nn::Graph before = small_transformer({16, 16}), after = small_transformer({12, 24});
  Model saved(before), loaded(after);
  saved.positions().copy_(embedding_of({4, 4}));
  save_weights(temp.file("w"), saved.set);
  const formats::TensorFile file = formats::open_tensor_file(temp.file("w"));
  EXPECT_EQ(core::code_of([&] { load_weights(file, loaded.set, 3); }), core::ErrorCode::kInvalidArgument);

  EXPECT_EQ(load_weights(file, loaded.set, 3, position_grids(after)).tensors, 5);
  const PositionGrid grid{.parameter = "positions", .patches = {3, 6}, .saved = {4, 4}};
  EXPECT_TRUE(at::equal(loaded.positions(), interpolate_positions(embedding_of({4, 4}), grid)));

  // Another head at the same time, as fine-tuning has it.
  Model other(small_transformer({12, 24}, 5));
  EXPECT_EQ(load_weights(file, other.set, 5, position_grids(after)).file_classes, 3);
  EXPECT_TRUE(at::equal(other.positions(), loaded.positions()));
}

// 2 x 8 and 4 x 4 patches are as many: only the size of the images tells them apart.
TEST(PositionEmbedding, AsManyPatchesInOtherRowsAreInterpolatedWhereTheSizeIsKnown) {
  const core::TempDir temp;
  const nn::Graph after = small_transformer({8, 32});
  Model saved(small_transformer({16, 16})), loaded(after);
  saved.positions().copy_(embedding_of({4, 4}));
  save_weights(temp.file("w"), saved.set);
  const formats::TensorFile file = formats::open_tensor_file(temp.file("w"));
  load_weights(file, loaded.set, 3, position_grids(after));
  EXPECT_TRUE(at::equal(loaded.positions(), saved.positions()));
  load_weights(file, loaded.set, 3, position_grids(after, {16, 16}));
  const PositionGrid grid{.parameter = "positions", .patches = {2, 8}, .saved = {4, 4}};
  EXPECT_TRUE(at::equal(loaded.positions(), interpolate_positions(embedding_of({4, 4}), grid)));
}

TEST(PositionEmbedding, GridsOfAGraph) {
  const auto grids = position_grids(models::build_model("vit_b_16", "imagenet", {.image_size = {160, 192}}), {224, 96});
  ASSERT_EQ(grids.size(), 1U);
  EXPECT_EQ(grids[0].parameter, "encoder.pos_embedding");
  EXPECT_EQ(grids[0].patches, nn::Size2d(10, 12));
  EXPECT_EQ(grids[0].saved, nn::Size2d(14, 6));
  EXPECT_TRUE(position_grids(models::build_model("resnet18", "imagenet", {})).empty());
}

TEST(PositionEmbedding, TellsFromWhichPatchesToWhich) {
  ::testing::internal::CaptureStderr();
  interpolate_positions(embedding_of({4, 3}), {.parameter = "p", .patches = {2, 6}, .saved = {4, 3}});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("p is interpolated from 4 x 3 patches to 2 x 6"), std::string::npos) << log;
}

TEST(PositionEmbedding, AStateIsInterpolatedAsItIsRead) {
  core::MemoryState state;
  state.tensor("model/positions", embedding_of({4, 3}));
  state.tensor("model/others", embedding_of({2, 2}));
  state.tensor("model/same", embedding_of({3, 2}));
  const PositionGrid grid{.parameter = "positions", .patches = {2, 5}, .saved = {4, 3}};
  const auto reader =
      interpolating_reader(state, "model/", {{.parameter = "same", .patches = {3, 2}, .saved = {3, 2}}, grid});
  at::Tensor positions = at::empty({1, 11, kChannels}), others = at::empty({1, 5, kChannels}),
             same = at::empty({1, 7, kChannels});
  reader->tensor("positions", positions);
  reader->tensor("others", others);
  reader->tensor("same", same);
  EXPECT_TRUE(at::equal(positions, interpolate_positions(embedding_of({4, 3}), grid)));
  EXPECT_TRUE(at::equal(others, embedding_of({2, 2})));
  EXPECT_TRUE(at::equal(same, embedding_of({3, 2})));
  EXPECT_TRUE(at::equal(reader->tensor("positions"), embedding_of({4, 3}))) << "a new tensor is as it was saved";
}

}  // namespace
}  // namespace trainyard::train::position_embedding_test
