// Batch norms that the CPU plan computes at once with the depthwise convolution behind them: which ones, the
// reference's numbers, and the same bits with recomputation and with other numbers of threads.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/nn/execution/node_observer.h"
#include "trainyard/nn/testing/replica.h"

namespace trainyard::nn::norm_depthwise_plan_test {
namespace {

using Function = Activation::Function;

struct Block {
  Function function = Function::kSilu;  // without kinks, where rounding would decide
  int64_t stride = 1, kernel = 3;
  bool activation = true, bias = false, second_reader = false, norm_of_image = false;
  int64_t kernel_width = 0, stride_width = 0;  // 0: as the other one
  int64_t multiplier = 1;                      // outputs a channel of the convolution
  Size2d dilation{};
  int64_t more_padding = 0;
  bool addition = false;        // behind the norm
  bool relu = false;            // behind the convolution
  bool norm_is_output = false;  // of the graph
  bool frozen_norm = false;
};

Graph graph_of(const Block& block) {
  GraphBuilder b({.image = {7, 11, 13}, .name = "block"});
  auto x = b.input();
  if (!block.norm_of_image) x = b.convolution("expand", x, {.out_channels = 20, .kernel = 1});
  x = b.batch_norm("norm1", x);
  if (block.addition) x = b.add("addition", {x, b.convolution("beside", b.input(), {.out_channels = 20})});
  if (block.activation) x = b.activation("activation1", x, block.function);
  const int64_t channels = block.norm_of_image ? 7 : 20;
  const Size2d kernel{block.kernel, block.kernel_width > 0 ? block.kernel_width : block.kernel};
  const Size2d stride{block.stride, block.stride_width > 0 ? block.stride_width : block.stride};
  auto y = b.convolution(
      "depthwise", x,
      {.out_channels = channels * block.multiplier,
       .kernel = kernel,
       .stride = stride,
       .padding = Padding::symmetric(kernel.height / 2 + block.more_padding, kernel.width / 2 + block.more_padding),
       .dilation = block.dilation,
       .groups = channels,
       .bias = block.bias});
  if (block.relu) y = b.activation("relu", y);
  y = b.activation("activation2", b.batch_norm("norm2", y), block.function);
  auto vector = b.global_average_pool("pool", y);
  if (block.second_reader) vector = b.add("sum", {vector, b.global_average_pool("pool1", x)});
  vector = b.linear("fc", vector, {.out_features = 5});
  return block.norm_is_output ? b.build(vector, {{"normed", x.id, 0.5}}) : b.build(vector);
}

at::Tensor images(int64_t batch, double phase = 0) {
  return (at::linspace(-2, 2, batch * 1001) * 37 + phase).sin().view({batch, 7, 11, 13});
}
at::Tensor labels(int64_t batch) {
  return at::linspace(0, 4.99, batch).to(at::kLong);
}

struct BlockReplica : Replica {
  explicit BlockReplica(const Graph& graph, const std::string& name = "cpu", at::ScalarType dtype = at::kFloat,
                        const KernelOptions& kernels = {.convolutions = ConvolutionPolicy::kByShape})
      : Replica(name, graph, dtype, kernels) {}
  void freeze_norm() {
    for (const char* parameter : {"norm1.weight", "norm1.bias"}) set.set_trainable(*set.find(parameter), false);
  }
  at::Tensor step(const std::vector<at::Tensor>& micro_steps) {
    const auto count = static_cast<int>(micro_steps.size());
    for (int i = 0; i < count; ++i) {
      const at::Tensor x = micro_steps[static_cast<size_t>(i)].to(set.dtype());
      sink.begin(i, count);
      softmax_cross_entropy(executor->forward(x, {.seed = 3}), labels(x.size(0))).backward();
    }
    sink.finish();
    return set.gradients().clone();
  }
};

class Kernels : public NodeObserver {
 public:
  void ran(const NodeRun& run) override { names.emplace(run.kernel); }
  std::set<std::string> names;
};

bool is_at_once(const Block& block, at::ScalarType dtype = at::kFloat, const Fusions& fusions = {}) {
  BlockReplica cpu(graph_of(block), "cpu", dtype, {.convolutions = ConvolutionPolicy::kByShape, .fusions = fusions});
  if (block.frozen_norm) cpu.freeze_norm();
  Kernels seen;
  cpu.executor->set_observer(&seen);
  cpu.step({images(2)});
  return seen.names.contains("batch norm + activation + depthwise") || seen.names.contains("batch norm + depthwise");
}

TEST(NormDepthwisePlan, ComputesBothAtOnce) {
  EXPECT_TRUE(is_at_once({}));
  EXPECT_TRUE(is_at_once({.function = Function::kRelu6, .stride = 2}));
  EXPECT_TRUE(is_at_once({.activation = false}));
  EXPECT_TRUE(is_at_once({.norm_of_image = true}));
}

TEST(NormDepthwisePlan, LeavesOthersAsTheyAre) {
  EXPECT_FALSE(is_at_once({.kernel = 5}));
  EXPECT_FALSE(is_at_once({.stride = 3}));
  EXPECT_FALSE(is_at_once({.bias = true}));
  EXPECT_FALSE(is_at_once({.second_reader = true}));
  EXPECT_FALSE(is_at_once({.norm_is_output = true}));
  EXPECT_FALSE(is_at_once({.kernel = 5, .kernel_width = 3}));
  EXPECT_FALSE(is_at_once({.kernel_width = 5}));
  EXPECT_FALSE(is_at_once({.stride_width = 2}));
  EXPECT_FALSE(is_at_once({.multiplier = 2}));
  EXPECT_FALSE(is_at_once({.dilation = {2, 1}}));
  EXPECT_FALSE(is_at_once({.dilation = {1, 2}}));
  EXPECT_FALSE(is_at_once({.more_padding = 2}));
  EXPECT_FALSE(is_at_once({.addition = true}));
  EXPECT_FALSE(is_at_once({.relu = true}));
  EXPECT_FALSE(is_at_once({.frozen_norm = true}));
  EXPECT_EQ(is_at_once({}, at::kBFloat16), cpu::isa() == cpu::Isa::kAvx2);  // which keeps maps in float
  EXPECT_FALSE(is_at_once({}, at::kFloat, Fusions::none()));
}

TEST(NormDepthwisePlan, AgreesWithTheReference) {
  for (const Block& block : {Block{}, Block{.stride = 2}, Block{.activation = false}, Block{.norm_of_image = true},
                             Block{.function = Function::kGelu, .stride = 2}}) {
    const Graph graph = graph_of(block);
    BlockReplica cpu(graph), reference(graph, "reference", at::kDouble);
    const std::vector<at::Tensor> steps = {images(4), images(4, 1)};
    cpu.step(steps);
    reference.step(steps);
    // Some are nearly zero by nature: norm2 takes away what norm1 scales, where no activation is between them.
    const double typical =
        (reference.set.gradients().norm() / std::sqrt(static_cast<double>(reference.set.size()))).item<double>();
    for (const Segment& segment : reference.set.segments()) {
      const at::Tensor expected = reference.set.gradient(segment.id);
      const double error = (cpu.set.gradient(segment.id).to(at::kDouble) - expected).norm().item<double>();
      EXPECT_LT(error, 2e-5 * std::max(expected.norm().item<double>(), typical)) << segment.spec.name;
    }
    for (int i = 0; i < static_cast<int>(cpu.set.buffer_count()); ++i) {
      EXPECT_LT(distance(cpu.set.buffer(i), reference.set.buffer(i)), 1e-5) << cpu.set.buffer_spec(i).name;
    }
  }
}

TEST(NormDepthwisePlan, LeavesFrozenWeightsAlone) {
  const Graph graph = graph_of({});
  BlockReplica all(graph), frozen(graph);
  const ParameterId weight = *frozen.set.find("depthwise.weight");
  frozen.set.set_trainable(weight, false);
  all.step({images(3)});
  frozen.step({images(3)});
  EXPECT_EQ(frozen.set.gradient(weight).count_nonzero().item<int64_t>(), 0);
  EXPECT_GT(all.set.gradient(weight).count_nonzero().item<int64_t>(), 0);
  for (const char* name : {"expand.weight", "norm1.weight", "norm1.bias"}) {
    EXPECT_TRUE(at::equal(frozen.set.gradient(*frozen.set.find(name)), all.set.gradient(*all.set.find(name)))) << name;
  }
}

// A norm that is frozen as a whole takes its running statistics, and leaves them as they are.
TEST(NormDepthwisePlan, LeavesTheStatisticsOfAFrozenNormAlone) {
  const Graph graph = graph_of({});
  BlockReplica cpu(graph), reference(graph, "reference", at::kDouble);
  for (BlockReplica* replica : {&cpu, &reference}) {
    replica->freeze_norm();
    replica->set.buffer(*replica->set.find_buffer("norm1.running_mean")).fill_(0.25);
    replica->step({images(3)});
  }
  for (const char* name : {"expand.weight", "depthwise.weight", "norm2.weight"}) {
    EXPECT_LT(distance(cpu.set.gradient(*cpu.set.find(name)), reference.set.gradient(*reference.set.find(name))), 2e-5)
        << name;
  }
  const at::Tensor mean = cpu.set.buffer(*cpu.set.find_buffer("norm1.running_mean"));
  EXPECT_EQ(mean.sub(0.25).abs().max().item<float>(), 0);
}

TEST(NormDepthwisePlan, RecomputesTheSameBits) {
  const Graph graph = graph_of({.function = Function::kRelu6});
  const auto gradients = [&](Recomputation recomputation) {
    return BlockReplica(graph, "cpu", at::kFloat,
                        {.convolutions = ConvolutionPolicy::kByShape, .recomputation = recomputation})
        .step({images(3)});
  };
  const at::Tensor kept = gradients(Recomputation::kNone);
  EXPECT_TRUE(at::equal(gradients(Recomputation::kElementwise), kept));
  EXPECT_TRUE(at::equal(gradients(Recomputation::kBlocks), kept));
}

TEST(NormDepthwisePlan, GivesTheSameBitsForAnyNumberOfThreads) {
  const Graph graph = graph_of({.function = Function::kRelu6, .stride = 2});
  const auto gradients = [&](int threads) {
    const int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    const at::Tensor result = BlockReplica(graph).step({images(5)});
    omp_set_num_threads(before);
    return result;
  };
  const at::Tensor one = gradients(1);
  for (const int threads : {2, 3}) EXPECT_TRUE(at::equal(gradients(threads), one)) << threads;
}

}  // namespace
}  // namespace trainyard::nn::norm_depthwise_plan_test
