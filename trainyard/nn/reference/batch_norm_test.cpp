// The reference executor's batch norm where layers give it odd layouts, and its running statistics.
#include <algorithm>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/var.h>
#include <gtest/gtest.h>

#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/testing/conformance_rig.h"

namespace trainyard::nn::batch_norm_test {
namespace {

using Build = LayerCase::Build;

// Expects gradients as central differences give them, in double.
void expect_right_gradients(const LayerCase& layer, int64_t batch) {
  SCOPED_TRACE(::testing::Message() << layer.name << ", batch " << batch);
  const Graph graph = conformance::graph_of(layer);
  conformance::Rig rig("reference", graph, Mode::kTraining, at::kDouble);
  at::Tensor images = conformance::images_of(layer, batch);
  const conformance::Rig::Result result = rig.run(images);
  const at::Tensor cotangent = conformance::Rig::cotangent(result.output);
  const auto loss = [&] {
    return (rig.executor->forward(images, conformance::kRandom) * cotangent).sum().item<double>();
  };
  for (const auto& [name, gradient] : result.gradients) {
    const at::Tensor variable = name == "input" ? images : rig.set.value(*rig.set.find(name));
    const at::Tensor exact = gradient.contiguous();
    for (int64_t i = 0; i < variable.numel(); ++i) {
      const double difference = conformance::central_difference(variable, i, loss);
      ASSERT_NEAR(exact.const_data_ptr<double>()[i], difference, 1e-7) << name << " " << i;
    }
  }
}

// Attention leaves [N, queries, C] in memory: an image [N, C, queries, 1] whose strides may be taken for those of
// either layout. The gradient of a global pool has strides of zero.
TEST(ReferenceBatchNorm, HasRightGradientsBehindAttention) {
  for (const int64_t queries : {1, 2, 3, 5}) {
    const LayerCase layer{.name = "Queries" + std::to_string(queries),
                          .image = {24, 5, 1},
                          .build = [queries](GraphBuilder& b, GraphBuilder::Value x) {
                            const auto y = b.attention("attention", x, {.heads = 2, .queries = queries});
                            return b.global_average_pool("pool", b.batch_norm("norm", y));
                          }};
    for (const int64_t batch : {2, 3}) expect_right_gradients(layer, batch);
  }
}

// The other way round: a norm of a contiguous image whose output attention reads.
TEST(ReferenceBatchNorm, HasRightGradientsInFrontOfAttention) {
  const LayerCase layer{.name = "InFront", .image = {12, 3, 1}, .build = [](GraphBuilder& b, GraphBuilder::Value x) {
                          const auto y = b.attention("attention", b.batch_norm("norm", x), {.heads = 1});
                          return b.global_average_pool("pool", b.batch_norm("behind", y));
                        }};
  for (const int64_t batch : {1, 3}) expect_right_gradients(layer, batch);
}

// Frozen norms are maps by running statistics; their backward has the same fault in LibTorch.
TEST(ReferenceBatchNorm, HasRightGradientsWhereItIsFrozen) {
  const LayerCase layer{.name = "Frozen", .image = {24, 5, 1}, .build = [](GraphBuilder& b, GraphBuilder::Value x) {
                          const auto y = b.attention("attention", x, {.heads = 2, .queries = 3});
                          return b.global_average_pool("pool", b.batch_norm("norm", y));
                        }};
  const Graph graph = conformance::graph_of(layer);
  conformance::Rig rig("reference", graph, Mode::kTraining, at::kDouble);
  for (const char* name : {"norm.weight", "norm.bias"}) rig.set.set_trainable(*rig.set.find(name), false);
  const at::Tensor images = conformance::images_of(layer, 2);
  const conformance::Rig::Result result = rig.run(images);
  const at::Tensor cotangent = conformance::Rig::cotangent(result.output);
  at::Tensor moved = images.clone();
  const auto loss = [&] {
    return (rig.executor->forward(moved, conformance::kRandom) * cotangent).sum().item<double>();
  };
  const at::Tensor gradient = result.gradients.at("input").contiguous();
  for (int64_t i = 0; i < images.numel(); ++i) {
    const double difference = conformance::central_difference(moved, i, loss);
    ASSERT_NEAR(gradient.const_data_ptr<double>()[i], difference, 1e-7) << i;
  }
}

TEST(ReferenceBatchNorm, KeepsTheVarianceThatItsOriginalKeeps) {
  for (const bool biased : {false, true}) {
    GraphBuilder b({.image = {3, 2, 1}, .name = "norm"});
    const Graph graph =
        b.build(b.flatten("flat", b.batch_norm("norm", b.input(), {.decay = 0.75, .biased_running_variance = biased})));
    ParameterSet set({.dtype = at::kDouble});
    GradientSink sink(set);
    const auto executor =
        make_executor("reference", graph, {.dtype = at::kDouble, .parameters = &set, .gradients = &sink});
    set.allocate();
    set.initialize(1);
    const at::Tensor x = at::randn({2, 3, 2, 1}, at::kDouble);
    executor->forward(x, conformance::kRandom);
    const at::Tensor variance = at::var(x, at::IntArrayRef{0, 2, 3}, !biased);
    const at::Tensor expected = 0.75 + 0.25 * variance;
    EXPECT_LE((set.buffer(*set.find_buffer("norm.running_var")) - expected).abs().max().item<double>(), 1e-12);
  }
}

}  // namespace
}  // namespace trainyard::nn::batch_norm_test
