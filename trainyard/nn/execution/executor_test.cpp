// What all executors check of their inputs and contexts, and which one `auto` is.
#include "trainyard/nn/execution/executor.h"

#include <limits>
#include <memory>
#include <string>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/nn/execution/quantized_numbers.h"
#include "trainyard/nn/execution/sync_batch_norm.h"
#include "trainyard/nn/testing/bound.h"

namespace trainyard::nn::executor_test {
namespace {

TEST(FastestExecutor, IsThatOfTheDeviceForTheTypesThatItHas) {
  const at::Device cpu(at::kCPU), cuda(at::kCUDA), other(at::kMeta);
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    EXPECT_EQ(fastest_executor(cuda, dtype), "cuda") << dtype;
    EXPECT_EQ(fastest_executor(cpu, dtype), dtype == at::kHalf ? "reference" : "cpu") << dtype;
    EXPECT_EQ(fastest_executor(other, dtype), "reference") << dtype;
  }
  EXPECT_EQ(fastest_executor(cuda, at::kDouble), "reference");
  EXPECT_EQ(fastest_executor(cpu, at::kDouble), "reference");
}

// Two inputs, of two and of three dimensions.
Graph two_inputs() {
  GraphBuilder b({.image = {3, 4, 2}, .name = "two"});
  const auto depth = b.input("depth", {5});
  const auto x = b.concat("concat", {b.global_average_pool("pool", b.input()), depth});
  return b.build(b.linear("fc", x, {.out_features = 2}));
}

struct Bound : testing::Bound {
  using testing::Bound::Bound;
  std::string refusal(const core::NamedTensors& inputs, core::ErrorCode code = core::ErrorCode::kInvalidArgument) {
    return core::message_of([&] { executor->run(inputs, {}); }, code);
  }
};

TEST(Executor, SaysWhichOfSeveralInputsIsWrong) {
  Bound two(two_inputs());
  const at::Tensor images = at::zeros({6, 3, 4, 2}), depth = at::zeros({6, 5});
  EXPECT_EQ(two.executor->run({{"depth", depth}, {"images", images}}, {}).begin()->tensor.size(0), 6);
  EXPECT_EQ(two.refusal({{"images", images}}), "the input 'depth' is missing: two: expected images, depth, got images");
  EXPECT_EQ(two.refusal({{"images", images}, {"dept", depth}}, core::ErrorCode::kNotFound),
            "unknown input of two 'dept'; did you mean 'depth'? known: images, depth");
  EXPECT_EQ(two.refusal({{"images", images}, {"depth", at::zeros({7, 5})}}),
            "the input 'depth' does not fit the others: two: expected a batch of 6, got [7, 5] of Float");
  EXPECT_EQ(two.refusal({{"images", images}, {"depth", at::zeros({6, 4})}}),
            "the input 'depth' does not fit the model: two: expected a batch of [5] of a float type, got [6, 4] of "
            "Float");
  EXPECT_EQ(two.refusal({{"images", images}, {"depth", at::zeros({6, 5, 1})}}),
            "the input 'depth' does not fit the model: two: expected a batch of [5] of a float type, got [6, 5, 1] of "
            "Float");
  EXPECT_EQ(two.refusal({{"images", images}, {"depth", at::Tensor()}}),
            "the input 'depth' does not fit the model: two: expected a batch of [5] of a float type, got an undefined "
            "tensor");
}

TEST(Executor, RefusesContextsThatContradictThemselves) {
  const Graph graph = two_inputs();
  ParameterSet set;
  const auto refusal = [&](BuildContext context, core::ErrorCode code = core::ErrorCode::kInvalidArgument) {
    context.parameters = &set;
    return core::message_of([&] { make_executor("reference", graph, context); }, code);
  };
  const auto scales = std::make_shared<Quantization>();
  EXPECT_EQ(refusal({.mode = Mode::kTraining, .frozen = true}), "variables are constants in inference only: two");
  EXPECT_EQ(refusal({.mode = Mode::kInference, .quantization = scales}),
            "a network computes in 8 bits only with constant variables: two: expected BuildContext::frozen, got "
            "variables that may change");
  EXPECT_EQ(refusal({.device = at::kMeta, .mode = Mode::kInference, .frozen = true, .quantization = scales},
                    core::ErrorCode::kUnsupported),
            "networks compute in 8 bits on CPUs only: two: expected the CPU, got meta");
  SyncBatchNorm exchange(nullptr);
  EXPECT_EQ(refusal({.device = at::kMeta, .sync_batch_norm = &exchange}, core::ErrorCode::kUnsupported),
            "batch norms meet those of other replicas on CPUs only: two: expected no exchange of statistics, or the "
            "CPU, got meta");
}

Graph small_linear() {
  GraphBuilder b({.image = {2}, .name = "net"});
  return b.build(b.linear("fc", b.input(), {.out_features = 3}));
}

TEST(QuantizedNumbers, AreTheNearestIntegersOfEachOutputChannel) {
  const Graph graph = small_linear();
  const at::Tensor weight = at::tensor({127.0F, -127.4F, 1.25F, -0.75F, 0.0F, 25.4F}).view({3, 2});
  const at::Tensor integers = quantize_weights(graph.nodes[1], weight, {1, 0.5F, 0.2F});
  EXPECT_EQ(integers.scalar_type(), at::kChar);
  // 1.25 / 0.5 and -0.75 / 0.5 are ties: to even.
  EXPECT_TRUE(integers.equal(at::tensor({127, -127, 2, -2, 0, 127}, at::kChar).view({3, 2})));
}

TEST(QuantizedNumbers, AWeightThatDoesNotFitIsNamed) {
  const Graph graph = small_linear();
  const auto refusal = [&](float number) {
    const at::Tensor weight = at::full({3, 2}, 1.0F);
    weight.data_ptr<float>()[3] = number;
    return core::message_of([&] { static_cast<void>(quantize_weights(graph.nodes[1], weight, {1, 0.5F, 1})); });
  };
  EXPECT_EQ(refusal(63.5F), "no error");
  EXPECT_EQ(refusal(-64),
            "a weight does not fit the 8 bits of its scale: fc, output channel 1: expected at most 127 * 0.5, got -64; "
            "quantize the model again: its weights are not those that the scales were made for");
  EXPECT_THAT(refusal(std::numeric_limits<float>::quiet_NaN()), ::testing::HasSubstr("got nan"));
}

TEST(QuantizedNumbers, ABiasThatIsNotFiniteIsNamed) {
  const Graph graph = small_linear();
  at::Tensor bias = at::tensor({1.0F, -2.0F, 3.0F});
  EXPECT_NO_THROW(check_quantized_bias(graph.nodes[1], bias));
  bias.data_ptr<float>()[2] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(core::message_of([&] { check_quantized_bias(graph.nodes[1], bias); }),
            "a bias of a layer in 8 bits is not finite: fc, output channel 2: got inf; find the run or the file that "
            "these weights come from: they are damaged");
}

}  // namespace
}  // namespace trainyard::nn::executor_test
