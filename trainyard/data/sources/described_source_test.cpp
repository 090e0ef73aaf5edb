#include "trainyard/data/sources/described_source.h"

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/sources/combined_source.h"
#include "trainyard/data/sources/folder_source.h"
#include "trainyard/data/sources/retried_source.h"
#include "trainyard/data/sources/round_robin_source.h"
#include "trainyard/data/sources/tensor_source.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::described_source_test {
namespace {

using ::testing::ElementsAre;

// As a program augments: nothing but a next() of its own.
class Around : public SourceDecorator {
 public:
  explicit Around(std::shared_ptr<BatchSource> source) : SourceDecorator(std::move(source)) {}
  std::vector<Batch> next() override { return source()->next(); }
};

// Gives half of the batches, two at a time.
class Halved : public Around, public SizedSource {
 public:
  explicit Halved(const std::shared_ptr<BatchSource>& source) : Around(source) {}
  int64_t batches_per_epoch() const override { return batches_in_epoch(*inner()) / 2; }
};

class Described : public ::testing::Test {
 protected:
  const core::TempDir temp_;

  std::string make_folder(const std::string& name, const std::vector<std::string>& classes) const {
    for (const std::string& kind : classes) {
      const std::string path = temp_.file(name + "/" + kind);
      core::local_file_system().make_directories(path);
      for (int i = 0; i < 4; ++i) {
        const auto bytes = encode_png(noisy_image(20, 20, static_cast<uint64_t>(i)));
        std::ofstream(path + "/" + std::to_string(i) + ".png", std::ios::binary)
            .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
      }
    }
    return temp_.file(name);
  }
  std::shared_ptr<FolderSource> pets(int64_t size = 16, bool training = true) const {
    return open_folder(make_folder("pets", {"cat", "dog"}),
                       {.size = size, .batch_size = 2, .training = training, .worker_threads = 1});
  }
};

TEST_F(Described, AFolderIsSeenThroughTheSourcesAroundIt) {
  const auto folder = pets();
  const std::vector<std::shared_ptr<BatchSource>> sources{
      folder,
      std::make_shared<Around>(folder),
      std::make_shared<Around>(std::make_shared<Around>(folder)),
      checked(std::make_shared<Around>(folder), {}, "training"),
      retried(folder),
  };
  for (const auto& source : sources) {
    const auto said = description_of(*source);
    ASSERT_TRUE(said.has_value());
    EXPECT_THAT(said->classes, ElementsAre("cat", "dog"));
    EXPECT_EQ(said->transform, "imagenet");
    EXPECT_EQ(said->input.eval_resize_size, folder->transform().eval_resize_size);
    EXPECT_EQ(said->input.normalization, folder->transform().normalization);
    EXPECT_TRUE(said->training);
    EXPECT_EQ(batches_in_epoch(*source), 4);
    EXPECT_EQ(find_source<FolderSource>(*source), folder.get());
  }
  EXPECT_FALSE(description_of(Around(pets(16, false)))->training);
}

TEST_F(Described, OneThatGivesOtherBatchesCountsThemItself) {
  const auto folder = pets();
  EXPECT_EQ(batches_in_epoch(Halved(folder)), 2);
  EXPECT_EQ(batches_in_epoch(Around(std::make_shared<Halved>(folder))), 2);
  const RoundRobinSource dealt(std::make_shared<Around>(folder), 2);
  EXPECT_EQ(batches_in_epoch(dealt), 0) << "a step takes two batches";
  EXPECT_THAT(description_of(dealt)->classes, ElementsAre("cat", "dog"));
}

TEST_F(Described, CombinedSourcesSayWhatTheyAgreeOn) {
  const auto folder = pets(), other_size = pets(24);
  const auto vehicles =
      open_folder(make_folder("vehicles", {"bus", "car"}), {.size = 16, .batch_size = 2, .worker_threads = 1});
  const auto weights = std::make_shared<TensorSource>(core::NamedTensors{{"weight", at::zeros({8})}},
                                                      TensorSourceOptions{.batch_size = 2});
  EXPECT_THAT(description_of(MixedSource({{folder}, {std::make_shared<Around>(pets())}}, {}))->classes,
              ElementsAre("cat", "dog"));
  EXPECT_THAT(
      description_of(Around(std::make_shared<ZippedSource>(std::vector<std::shared_ptr<BatchSource>>{folder, weights})))
          ->classes,
      ElementsAre("cat", "dog"));
  EXPECT_FALSE(description_of(MixedSource({{folder}, {vehicles}}, {}))) << "other classes";
  EXPECT_FALSE(description_of(MixedSource({{folder}, {other_size}}, {}))) << "other images";
  EXPECT_FALSE(description_of(*weights)) << "tensors of whatever";
  EXPECT_EQ(batches_in_epoch(*weights), 4);
}

TEST(SameEvaluationInput, DiffersByWhateverChangesAnEvaluationsImages) {
  const TransformOptions input{};
  const auto differs = [&](void (*change)(TransformOptions&)) {
    TransformOptions changed = input;
    change(changed);
    return !same_evaluation_input(input, changed);
  };
  EXPECT_TRUE(differs([](TransformOptions& o) { o.height = 225; }));
  EXPECT_TRUE(differs([](TransformOptions& o) { o.width = 225; }));
  EXPECT_TRUE(differs([](TransformOptions& o) { o.resize_method = "area"; }));
  EXPECT_TRUE(differs([](TransformOptions& o) { o.resize_antialias = true; }));
  EXPECT_TRUE(differs([](TransformOptions& o) { o.resize_half_pixel_centers = true; }));
  EXPECT_TRUE(differs([](TransformOptions& o) { o.eval_resize_size = 232; }));
  EXPECT_TRUE(differs([](TransformOptions& o) { o.eval_central_part = 0.875F; }));
  EXPECT_TRUE(differs([](TransformOptions& o) { o.eval_scaled_decode = true; }));
  EXPECT_TRUE(differs([](TransformOptions& o) { o.resize_convention = ResizeConvention::kDali; }));
  EXPECT_TRUE(differs([](TransformOptions& o) { o.exif_orientation = true; }));
  EXPECT_TRUE(differs([](TransformOptions& o) { o.normalization.shift[2] = 0; }));
  EXPECT_FALSE(differs([](TransformOptions& o) {
    o.training = o.distortions = false;
    o.cutout = 8;
  })) << "of training alone";
}

}  // namespace
}  // namespace trainyard::data::described_source_test
