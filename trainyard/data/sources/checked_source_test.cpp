#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/sources/described_source.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/data/sources/tensor_source.h"

namespace trainyard::data::checked_source_test {
namespace {

const BatchForm kForm{{"images", at::kFloat, {-1, 3, 4, 4}}, {"labels", at::kLong, {-1}}, {"scale", at::kFloat, {}}};

// What next() says of a second replica's batch.
std::string said_of(const core::NamedTensors& second) {
  const core::NamedTensors good{{"images", at::zeros({2, 3, 4, 4})},
                                {"labels", at::zeros({2}, at::kLong)},
                                {"scale", at::zeros({})},
                                {"more", at::zeros({7}, at::kByte)}};
  const auto make = [&](const BatchPlace& place) {
    core::NamedTensors batch = good;
    if (place.replica == 0) return batch;
    for (const auto& [name, tensor] : second) batch.set(name, tensor);
    return batch;
  };
  const auto source =
      checked(std::make_shared<FunctionSource>(make, FunctionSourceOptions{.replicas = 2}), kForm, "training");
  return core::message_of([&] { source->next(); });
}

TEST(CheckedSource, NamesSourceReplicaAndTensor) {
  const std::string begin = "a tensor of a batch has another form: source 'training', replica 1, tensor ";
  EXPECT_EQ(said_of({}), "no error");
  EXPECT_EQ(said_of({{"images", at::zeros({5, 3, 4, 4})}}), "no error");
  EXPECT_EQ(said_of({{"images", at::zeros({2, 4, 4, 3})}}),
            begin + "'images': expected Float [-1, 3, 4, 4], got Float [2, 4, 4, 3]");
  EXPECT_EQ(said_of({{"images", at::zeros({2, 3, 4, 4}, at::kByte)}}),
            begin + "'images': expected Float [-1, 3, 4, 4], got Byte [2, 3, 4, 4]");
  EXPECT_EQ(said_of({{"labels", at::zeros({2, 1}, at::kLong)}}),
            begin + "'labels': expected Long [-1], got Long [2, 1]");
  EXPECT_EQ(said_of({{"scale", at::zeros({1})}}), begin + "'scale': expected Float [], got Float [1]");
}

TEST(CheckedSource, NamesTheTensorThatIsNotThere) {
  const auto source = checked(std::make_shared<TensorSource>(core::NamedTensors{{"image", at::zeros({2, 3, 4, 4})}},
                                                             TensorSourceOptions{.batch_size = 2}),
                              {{"images", at::kFloat, {-1, 3, 4, 4}}}, "evaluation");
  EXPECT_EQ(core::message_of([&] { source->next(); }),
            "a batch lacks a tensor: source 'evaluation', replica 0, tensor 'images': expected Float [-1, 3, 4, 4], "
            "got just 'image'");
  EXPECT_NE(core::problem_of([] { checked(nullptr, {}, "none"); }), "");
}

TEST(CheckedSource, IsItsSourceInAllElse) {
  const auto plain = std::make_shared<TensorSource>(
      core::NamedTensors{{"x", at::zeros({5})}}, TensorSourceOptions{.batch_size = 3, .replicas = 2, .repeat = false});
  const auto source = checked(plain, {{"x", at::kFloat, {-1}}}, "x");
  EXPECT_EQ(source->batch_size(), 3);
  EXPECT_EQ(source->replicas(), 2);
  EXPECT_EQ(source->next()[1].samples(), 2);
  EXPECT_EQ(source->position(), (Position{0, 5}));
  core::MemoryState state;
  source->save(state);
  EXPECT_TRUE(source->next().empty());
  source->seek({});
  EXPECT_EQ(plain->position(), Position{});
  plain->load(state);
  EXPECT_EQ(source->position(), (Position{0, 5}));
}

// The batch of a replica that is left without samples.
TEST(CheckedSource, ABatchWithoutTensorsPasses) {
  const auto none = [](const BatchPlace&) { return core::NamedTensors(); };
  const auto source = checked(std::make_shared<FunctionSource>(none, FunctionSourceOptions{}), kForm, "none");
  EXPECT_EQ(source->next().size(), 1U);
}

}  // namespace
}  // namespace trainyard::data::checked_source_test
