// The CUDA executor with its kernels run on the CPU (tests/cuda_emulation): all that a GPU would compute, in the same
// order, but for cuDNN's and cuBLAS's part, which is ATen's on the CPU.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/nn/cuda/cross_entropy.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/testing/conformance_suite.h"

namespace trainyard::nn::emulated_executor_test {
namespace {

std::vector<ConformanceCase> cases() {
  return conformance_cases({.name = "cuda_emulation", .dtypes = {at::kFloat, at::kHalf, at::kBFloat16}});
}

TEST(CudaEmulation, CrossEntropyIsAtens) {
  for (const double smoothing : {0.0, 0.1}) {
    for (const int64_t classes : {2, 10, 255, 256, 257, 1000}) {
      const at::Tensor labels = at::randint(classes, {7}, at::kLong);
      at::Tensor own = at::randn({7, classes}).mul_(5), other = own.clone();
      own.requires_grad_(true);
      other.requires_grad_(true);
      const at::Tensor loss = cuda::softmax_cross_entropy(own, labels, smoothing);
      const at::Tensor expected = at::cross_entropy_loss(other, labels, {}, 1, -100, smoothing);
      (loss * 3).backward();
      (expected * 3).backward();
      EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-6 * expected.item<double>());
      EXPECT_LE((own.grad() - other.grad()).norm().item<double>(), 1e-6 * other.grad().norm().item<double>());
    }
  }
  const at::Tensor logits = at::randn({3, 10});
  at::Tensor labels = at::randint(10, {3}, at::kLong);
  for (const int64_t no_class : {-1, 10}) {
    labels[1] = no_class;
    EXPECT_TRUE(cuda::softmax_cross_entropy(logits, labels, 0).isnan().item<bool>());
  }
}

TEST(CudaEmulation, RefusesFrozenParameters) {
  GraphBuilder b({.image = {3, 4, 4}, .name = "tiny"});
  const Graph graph = b.build(b.linear("fc", b.global_average_pool("pool", b.input()), {.out_features = 2}));
  ParameterSet set;
  GradientSink sink(set);
  const auto training = make_executor("cuda_emulation", graph, {.parameters = &set, .gradients = &sink});
  set.allocate();
  set.initialize(3);
  const auto inference = make_executor("cuda_emulation", graph, {.mode = Mode::kInference, .parameters = &set});
  const at::Tensor images = at::randn({2, 3, 4, 4});
  set.set_trainable(*set.find("fc.bias"), false);
  EXPECT_EQ(core::message_of([&] { training->forward(images, {}); }, core::ErrorCode::kUnsupported),
            "parameters cannot be frozen on the CUDA executor yet: tiny; train all parameters, or use the reference "
            "executor");
  inference->forward(images, {});
  set.set_trainable(*set.find("fc.bias"), true);
  training->forward(images, {});
}

TEST(CudaEmulation, RefusesSeveralInputsOrOutputs) {
  const auto message = [](const Graph& graph) {
    ParameterSet set;
    return core::message_of([&] { make_executor("cuda_emulation", graph, {.parameters = &set}); },
                            core::ErrorCode::kUnsupported);
  };
  GraphBuilder b({.image = {3, 4, 4}, .name = "two"});
  EXPECT_EQ(message(b.build(b.add("add", {b.input(), b.input("other", {3, 4, 4})}))),
            "the CUDA executor cannot run a graph of several inputs or outputs yet: two: expected one input and one "
            "output, got 2 and 1; use the reference executor, or the main output alone (nn::main_output_graph)");
  GraphBuilder heads({.image = {3, 4, 4}, .name = "two"});
  const auto x = heads.flatten("flat", heads.input());
  const Graph graph = heads.build(x, {{"again", x.id}});
  EXPECT_NE(message(graph).find("got 1 and 2"), std::string::npos);
  ParameterSet set;
  EXPECT_NO_THROW(make_executor("cuda_emulation", main_output_graph(graph), {.parameters = &set}));
}

// The fused kernels that are chosen otherwise, and the formula that repeats itself: of one step, the same.
TEST(CudaEmulation, DeterministicAttentionIsTheSameAttention) {
  const auto step = [](const std::string& executor, const Attention& op, ConvolutionPolicy policy) {
    GraphBuilder b({.image = {48, 6, 9}, .name = "attention"});
    const Graph graph = b.build(b.attention("layer", b.input(), op));
    ParameterSet set;
    GradientSink sink(set);
    const auto run =
        make_executor(executor, graph, {.kernels = {.convolutions = policy}, .parameters = &set, .gradients = &sink});
    set.allocate();
    set.initialize(3);
    set.values().copy_(at::sin(at::arange(set.values().numel())));
    set.values_changed();
    at::Tensor images = at::sin(at::arange(4 * 48 * 6 * 9).to(at::kFloat)).view({4, 48, 6, 9}).requires_grad_(true);
    std::vector<at::Tensor> results;
    for (int64_t number = 0; number < 2; ++number) {  // tables are made in the first
      sink.begin(0, 1);
      const at::Tensor output = run->forward(images, {.seed = 1, .step = number});
      images.mutable_grad().reset();
      (output * output).sum().backward();
      sink.finish();
      results = {output.detach(), images.grad(), set.gradients().clone()};
    }
    return results;
  };
  for (const Attention& op : {Attention{.heads = 2}, Attention{.heads = 2, .queries = 3},
                              Attention{.heads = 2, .window = 3}, Attention{.heads = 2, .window = 3, .shift = 1}}) {
    const auto expected = step("reference", op, ConvolutionPolicy::kAuto);
    for (const ConvolutionPolicy policy : {ConvolutionPolicy::kAuto, ConvolutionPolicy::kByShape}) {
      const auto own = step("cuda_emulation", op, policy);
      for (size_t i = 0; i < own.size(); ++i) {
        if (own[i].numel() == 0) continue;  // without windows there is no bias
        EXPECT_LE((own[i] - expected[i]).norm().item<double>(), 2e-6 * expected[i].norm().item<double>())
            << "window " << op.window << " shift " << op.shift << " queries " << op.queries << " result " << i;
      }
    }
  }
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(CudaEmulation, LayerConformance, ::testing::ValuesIn(cases()), conformance_name);

}  // namespace trainyard::nn::emulated_executor_test
