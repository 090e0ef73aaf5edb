#include "trainyard/nn/testing/conformance_suite.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/core.h>

#include "trainyard/nn/testing/conformance_rig.h"
#include "trainyard/nn/testing/naive_layers.h"

namespace trainyard::nn {

using conformance::central_difference, conformance::graph_of, conformance::images_of, conformance::kRandom,
    conformance::relative_error, conformance::Rig;

namespace {

constexpr int64_t kBatches[] = {1, 3};

// The longest sum of a forward or backward pass.
double terms(const Graph& graph, int64_t batch) {
  int64_t longest = 1;
  for (const Node& node : graph.nodes) {
    const auto elements = [](const Shape& shape) {
      return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    };
    // Over the batch and an image's pixels: statistics, and gradients of weights.
    longest = std::max(longest, batch * elements(node.shape) / node.shape[0]);
    for (const ParameterSpec& spec : node.parameters) {
      longest = std::max(longest, elements(spec.shape) / spec.shape[0]);  // over inputs
      longest = std::max(longest, elements(spec.shape));                  // and at most over outputs
    }
  }
  return static_cast<double>(longest);
}

double bound(at::ScalarType dtype, const Graph& graph, int64_t batch) {
  // half rounds finer than bfloat16, and is held to the same: its gradients may fall below its smallest numbers.
  if (dtype == at::kFloat) return 2e-6 * std::sqrt(terms(graph, batch));
  return std::ldexp(1.0, -7) * std::sqrt(static_cast<double>(graph.nodes.size()));
}

at::Tensor as_tensor(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

}  // namespace

std::vector<ConformanceCase> conformance_cases(const ExecutorUnderTest& executor) {
  std::vector<ConformanceCase> cases;
  for (LayerCase& layer : layer_cases()) cases.push_back({executor, std::move(layer)});
  return cases;
}

std::ostream& operator<<(std::ostream& out, const ConformanceCase& conformance_case) {
  return out << conformance_case.layer.name << " on " << conformance_case.executor.name;
}

std::string conformance_name(const ::testing::TestParamInfo<ConformanceCase>& info) {
  return info.param.layer.name;
}

TEST_P(LayerConformance, DoubleAgreesWithTheDefinition) {
  if (GetParam().executor.name != "reference") return;  // the others are held to it
  const Graph graph = graph_of(GetParam().layer);
  for (Mode mode : {Mode::kTraining, Mode::kInference}) {
    for (int64_t batch : kBatches) {
      Rig rig("reference", graph, mode, at::kDouble);
      const at::Tensor images = images_of(GetParam().layer, batch);
      naive::Buffers buffers = naive::buffers_of(rig.set);
      const naive::Values expected = naive::forward(graph, rig.set, images, mode, kRandom, buffers);
      const at::Tensor actual = rig.executor->forward(images, kRandom);
      const double allowed = 1e-12 * std::sqrt(terms(graph, batch));
      ASSERT_EQ(actual.numel(), static_cast<int64_t>(expected.data.size()));
      EXPECT_LE(relative_error(actual.flatten(), as_tensor(expected.data)), allowed) << "batch " << batch;
      for (int i = 0; i < static_cast<int>(rig.set.buffer_count()); ++i) {
        const std::string& name = rig.set.buffer_spec(i).name;
        EXPECT_LE(relative_error(rig.set.buffer(i), as_tensor(buffers.at(name))), allowed) << name;
      }
    }
  }
}

TEST_P(LayerConformance, GradientsAgreeWithCentralDifferences) {
  if (GetParam().executor.name != "reference") return;
  const Graph graph = graph_of(GetParam().layer);
  for (int64_t batch : kBatches) {
    Rig rig("reference", graph, Mode::kTraining, at::kDouble);
    at::Tensor images = images_of(GetParam().layer, batch);
    const Rig::Result result = rig.run(images);
    const at::Tensor cotangent = Rig::cotangent(result.output);
    const auto loss = [&] { return (rig.executor->forward(images, kRandom) * cotangent).sum().item<double>(); };
    for (const auto& [name, gradient] : result.gradients) {
      at::Tensor variable = name == "input" ? images : rig.set.value(*rig.set.find(name));
      const at::Tensor exact = gradient.contiguous();
      // A sample of at most about 60 elements each.
      const int64_t stride = std::max<int64_t>(variable.numel() / 60, 1);
      std::vector<double> differences, gradients;
      for (int64_t i = 0; i < variable.numel(); i += stride) {
        differences.push_back(central_difference(variable, i, loss));
        gradients.push_back(exact.const_data_ptr<double>()[i]);
      }
      EXPECT_LE(relative_error(as_tensor(gradients), as_tensor(differences)), 1e-6) << name << ", batch " << batch;
    }
  }
}

TEST_P(LayerConformance, EachDtypeAgreesWithDouble) {
  const auto& [executor, layer] = GetParam();
  const Graph graph = graph_of(layer);
  for (at::ScalarType dtype : executor.dtypes) {
    if (!layer.sixteen_bits && at::isReducedFloatingType(dtype)) continue;
    for (int64_t batch : kBatches) {
      Rig exact("reference", graph, Mode::kTraining, at::kDouble);
      Rig rig(executor.name, graph, Mode::kTraining, dtype, executor.device, false, executor.kernels);
      // bf16 sees its own rounding of the images; so does the reference.
      const at::Tensor images = images_of(layer, batch).to(dtype).to(at::kDouble);
      const Rig::Result expected = exact.run(images), actual = rig.run(images);
      const std::string where = fmt::format("{}, batch {}", toString(dtype), batch);
      EXPECT_EQ(actual.output.scalar_type(), at::kFloat) << where;
      EXPECT_LE(relative_error(actual.output, expected.output), bound(dtype, graph, batch)) << where;
      for (const auto& [name, gradient] : expected.gradients) {
        EXPECT_LE(relative_error(actual.gradients.at(name), gradient), bound(dtype, graph, batch))
            << name << ", " << where;
      }
      for (int i = 0; i < static_cast<int>(rig.set.buffer_count()); ++i) {
        EXPECT_LE(relative_error(rig.set.buffer(i), exact.set.buffer(i)), bound(dtype, graph, batch)) << where;
      }
    }
  }
}

// Constants may be folded into each other; the definition is inference with variables.
TEST_P(LayerConformance, FrozenAgreesWithDouble) {
  const auto& [executor, layer] = GetParam();
  const Graph graph = graph_of(layer);
  for (at::ScalarType dtype : executor.dtypes) {
    if (!layer.sixteen_bits && at::isReducedFloatingType(dtype)) continue;
    for (int64_t batch : kBatches) {
      Rig exact("reference", graph, Mode::kInference, at::kDouble);
      Rig rig(executor.name, graph, Mode::kInference, dtype, executor.device, true, executor.kernels);
      const at::Tensor images = images_of(layer, batch).to(dtype).to(at::kDouble);
      const at::Tensor input = images.to(rig.set.values().options().dtype(dtype));
      EXPECT_LE(relative_error(rig.executor->forward(input, kRandom), exact.executor->forward(images, kRandom)),
                bound(dtype, graph, batch))
          << fmt::format("{}, batch {}", toString(dtype), batch);
    }
  }
}

TEST_P(LayerConformance, RepeatsItselfBitForBit) {
  const auto& [executor, layer] = GetParam();
  const Graph graph = graph_of(layer);
  KernelOptions kernels = executor.kernels;
  if (executor.device.is_cuda()) kernels.convolutions = ConvolutionPolicy::kByShape;  // --deterministic
  Rig first(executor.name, graph, Mode::kTraining, at::kFloat, executor.device, false, kernels);
  Rig second(executor.name, graph, Mode::kTraining, at::kFloat, executor.device, false, kernels);
  const at::Tensor images = images_of(layer, 3);
  first.run(images);
  const Rig::Result a = first.run(images), b = second.run(images);
  EXPECT_TRUE(at::equal(a.output, b.output));
  for (const auto& [name, gradient] : a.gradients) EXPECT_TRUE(at::equal(gradient, b.gradients.at(name))) << name;
}

TEST_P(LayerConformance, MicroStepsAddUpInTheSink) {
  const auto& [executor, layer] = GetParam();
  const Graph graph = graph_of(layer);
  Rig rig(executor.name, graph, Mode::kTraining, at::kFloat, executor.device, false, executor.kernels);
  // Not each other's negatives, for which an attention's gradients cancel.
  const at::Tensor halves[] = {images_of(layer, 2).to(at::kFloat), images_of(layer, 2).to(at::kFloat).mul(-0.5)};
  at::Tensor sum = at::zeros_like(rig.set.gradients());
  double size = 0;
  for (const at::Tensor& half : halves) {
    rig.run(half);
    sum.add_(rig.set.gradients());
    size += rig.set.gradients().norm().item<double>();
  }
  for (int micro_step = 0; micro_step < 2; ++micro_step) {
    rig.sink.begin(micro_step, 2);
    const at::Tensor output = rig.executor->forward(halves[micro_step].to(executor.device), kRandom);
    if (output.requires_grad()) output.backward(Rig::cotangent(output));
    rig.sink.finish();
  }
  // A kernel may add a micro-step's parts to what is there one by one: the same but for rounding.
  EXPECT_LE((rig.set.gradients() - sum).norm().item<double>(), 1e-6 * size);
}

TEST_P(LayerConformance, InferenceLeavesNoTrace) {
  const auto& [executor, layer] = GetParam();
  const Graph graph = graph_of(layer);
  Rig training(executor.name, graph, Mode::kTraining, at::kFloat, executor.device, false, executor.kernels);
  const auto inference = make_executor(
      executor.name, graph,
      {.device = executor.device, .mode = Mode::kInference, .kernels = executor.kernels, .parameters = &training.set});
  const naive::Buffers before = naive::buffers_of(training.set);
  const at::Tensor images = images_of(layer, 3).to(executor.device).requires_grad_(true);
  const at::Tensor output = inference->forward(images, kRandom);
  EXPECT_FALSE(output.requires_grad());
  EXPECT_EQ(naive::buffers_of(training.set), before);
  // And does not depend on what else is in the batch.
  EXPECT_LE(relative_error(inference->forward(images.narrow(0, 1, 1), kRandom), output.narrow(0, 1, 1)), 1e-5);
}

}  // namespace trainyard::nn
