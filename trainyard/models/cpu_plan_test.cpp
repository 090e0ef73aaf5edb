// Whole models on the CPU plan against the reference executor in double: the same start, images and random streams.

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/core/random/random.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/nn/testing/drawn_values.h"

namespace trainyard::models::cpu_plan_test {
namespace {

constexpr int64_t kClasses = 10;

at::Tensor labels(int64_t batch) {
  return at::linspace(0, kClasses - 0.01, batch).to(at::kLong);
}

struct Replica {
  Replica(const std::string& executor_name, const nn::Graph& graph, at::ScalarType dtype,
          nn::ConvolutionPolicy convolutions = nn::ConvolutionPolicy::kAuto)
      : set({.dtype = dtype}), sink(set) {
    executor = nn::make_executor(
        executor_name, graph,
        {.dtype = dtype, .kernels = {.convolutions = convolutions}, .parameters = &set, .gradients = &sink});
    set.allocate();
  }
  void step(const at::Tensor& images, int64_t number = 0) {
    sink.begin(0, 1);
    const at::Tensor value = nn::softmax_cross_entropy(
        executor->forward(images.to(set.dtype()), {.seed = 5, .step = number}), labels(images.size(0)));
    value.backward();
    sink.finish();
    loss = value.item<double>();
  }
  nn::ParameterSet set;
  nn::GradientSink sink;
  std::unique_ptr<nn::Executor> executor;
  double loss = 0;
};

void copy_values(const nn::ParameterSet& from, nn::ParameterSet& to) {
  to.values().copy_(from.values());
  for (int i = 0; i < static_cast<int>(from.buffer_count()); ++i) to.buffer(i).copy_(from.buffer(i));
}

// Lifts or lowers each channel behind a batch norm by four standard deviations, and far more where that must outdo
// what a shortcut adds. Left where they are, some of a model's million inputs of ReLU lie so near zero that rounding
// puts them on the other side, which changes gradients by percents on any executor in float.
void move_from_zero(nn::ParameterSet& set, const nn::Graph& graph) {
  std::vector<bool> into_sum(graph.nodes.size());
  for (const nn::Node& node : graph.nodes) {
    // Stochastic depth stands between the two.
    if (!std::holds_alternative<nn::Add>(node.op) && !std::holds_alternative<nn::StochasticDepth>(node.op)) continue;
    for (int input : node.inputs) into_sum[static_cast<size_t>(input)] = true;
  }
  for (const nn::Node& node : graph.nodes) {
    if (!std::holds_alternative<nn::BatchNorm>(node.op)) continue;
    const at::Tensor shift = set.value(*set.find(node.name + ".bias"));
    const float down = into_sum[static_cast<size_t>(node.id)] ? -30 : -4;
    core::RandomStream stream(9, node.name);
    for (int64_t c = 0; c < shift.numel(); ++c) shift.data_ptr<float>()[c] = stream.below(4) == 0 ? down : 4;
  }
}

// GELU has no kink to stay away from. Far below zero it is so near zero that its rounding shows where the next batch
// norm enlarges what is left of it.
bool has_kinks(const nn::Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const nn::Node& node) {
    const auto* const activation = std::get_if<nn::Activation>(&node.op);
    return activation != nullptr && activation->function != nn::Activation::Function::kGelu;
  });
}

struct Case {
  std::string model;
  nn::Size2d image_size;
  int64_t batch;
  bool randomness = false;
  std::optional<double> drop{};  // of dropout and stochastic depth that the model does not have by itself
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.model;
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& tested) {
  std::string name = tested.param.model + (tested.param.drop ? "Dropping" : "");
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
}

class ZooOnCpuPlan : public ::testing::TestWithParam<Case> {};

double norm_of(const at::Tensor& tensor) {
  return tensor.norm().item<double>();
}

// How far a gradient may be off, by norm. Large images: oneDNN's direct kernels sum a weight's gradient over a whole
// image in float, with AVX2 over a smaller one. Winograd: how many tiles it sums at once depends on the processor's
// caches; vgg11_bn's eighth convolution is off by 1.4e-4 on Sapphire Rapids, and by less than 1e-4 on Zen.
double bound_of(const std::string& model, nn::ConvolutionPolicy policy) {
  const bool long_sums = nn::cpu::isa() == nn::cpu::Isa::kAvx2 || model == "inception_v3";
  return long_sums || policy == nn::ConvolutionPolicy::kWinograd ? 3e-4 : 1e-4;
}

void expect_the_same_step(Replica& cpu, Replica& reference, double bound) {
  EXPECT_NEAR(cpu.loss, reference.loss, 1e-4 * reference.loss);
  const double typical = norm_of(reference.set.gradients()) / std::sqrt(static_cast<double>(reference.set.size()));
  for (const nn::Segment& segment : reference.set.segments()) {
    const nn::ParameterId id = segment.id;
    const at::Tensor expected = reference.set.gradient(id), actual = cpu.set.gradient(id).to(at::kDouble);
    // Some are zero by nature, or nearly: of a bias that the next batch norm takes away again.
    const double error = norm_of(actual - expected) / std::max(norm_of(expected), 0.1 * typical);
    EXPECT_LE(error, bound) << segment.spec.name;
  }
  for (int i = 0; i < static_cast<int>(cpu.set.buffer_count()); ++i) {
    const at::Tensor expected = reference.set.buffer(i), actual = cpu.set.buffer(i).to(at::kDouble);
    EXPECT_LE(norm_of(actual - expected), 1e-5 * (norm_of(expected) + 1e-3)) << cpu.set.buffer_spec(i).name;
  }
}

TEST_P(ZooOnCpuPlan, GradientsAgreeWithTheReferenceInDouble) {
  core::install_cpu_allocator();
  const auto& [model, size, batch, randomness, drop] = GetParam();
  nn::Graph graph =
      build_model(model, first_dataset_with(model),
                  {.num_classes = kClasses, .image_size = size, .stochastic_depth = drop, .dropout = drop});
  for (nn::Node& node : graph.nodes) {
    // Rounding decides which of two nearly equal pixels max pooling selects: the smaller tests cover it.
    if (auto* pool = std::get_if<nn::Pool>(&node.op)) pool->kind = nn::Pool::Kind::kAverage;
    auto* const dropout = std::get_if<nn::Dropout>(&node.op);
    if (dropout != nullptr && !randomness) dropout->drop = 0;
  }
  const at::Tensor images = nn::normal_images({batch, 3, size.height, size.width});
  // Both algorithms, not the one that is faster on this machine.
  Replica direct("cpu", graph, at::kFloat, nn::ConvolutionPolicy::kDirect);
  Replica winograd("cpu", graph, at::kFloat, nn::ConvolutionPolicy::kWinograd);
  Replica reference("reference", graph, at::kDouble);
  direct.set.initialize(4);
  if (has_kinks(graph)) move_from_zero(direct.set, graph);
  copy_values(direct.set, winograd.set);
  copy_values(direct.set, reference.set);
  reference.step(images);
  for (Replica* const cpu : {&direct, &winograd}) {
    SCOPED_TRACE(cpu == &direct ? "direct" : "winograd");
    cpu->step(images);
    const auto policy = cpu == &direct ? nn::ConvolutionPolicy::kDirect : nn::ConvolutionPolicy::kWinograd;
    expect_the_same_step(*cpu, reference, bound_of(model, policy));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ZooOnCpuPlan,
                         ::testing::Values(Case{"resnet50_v1.5", 64, 4}, Case{"resnet50_v1.5", 64, 4, true, 0.4},
                                           Case{"mobilenet_v2", {64, 96}, 4}, Case{"densenet121", 64, 4},
                                           Case{"inception_v3", 107, 8},
                                           Case{"torchvision/alexnet", {127, 96}, 4, true},
                                           Case{"vgg11_bn", 32, 4, true}, Case{"convnext_tiny", 64, 2, true},
                                           Case{"swin_t", 64, 2, true}, Case{"vit_b_16", {32, 48}, 2},
                                           Case{"airbench94", 32, 8}, Case{"airbench96", 32, 4}),
                         name_of_case);

// Norms with weights, shifts and statistics that differ by channel, as training leaves them.
void vary_norms(nn::ParameterSet& set, const nn::Graph& graph) {
  const auto add = [](const at::Tensor& tensor, const std::string& name) {
    core::RandomStream stream(10, name);
    for (int64_t c = 0; c < tensor.numel(); ++c) tensor.data_ptr<float>()[c] += stream.uniform(-0.5F, 0.5F);
  };
  for (const nn::Node& node : graph.nodes) {
    if (!std::holds_alternative<nn::BatchNorm>(node.op)) continue;
    for (const nn::ParameterSpec& spec : node.parameters) add(set.value(*set.find(spec.name)), spec.name);
    for (const nn::BufferSpec& spec : node.buffers) add(set.buffer(*set.find_buffer(spec.name)), spec.name);
  }
  // torchvision's vision transformer starts with a last layer of zeros.
  if (const auto head = set.find("heads.head.weight")) add(set.value(*head), "heads.head.weight");
  set.values_changed();
}

class FrozenZoo : public ::testing::TestWithParam<Case> {};

TEST_P(FrozenZoo, LogitsAgreeWithTheReferenceInDouble) {
  core::install_cpu_allocator();
  const auto& [model, size, batch, randomness, drop] = GetParam();
  const nn::Graph graph = build_model(model, first_dataset_with(model), {.num_classes = kClasses, .image_size = size});
  const auto make = [&](const std::string& name, at::ScalarType dtype, nn::ParameterSet& set,
                        nn::ConvolutionPolicy convolutions = nn::ConvolutionPolicy::kWinograd) {
    return nn::make_executor(name, graph,
                             {.dtype = dtype,
                              .mode = nn::Mode::kInference,
                              .frozen = name == "cpu",
                              .kernels = {.convolutions = convolutions},
                              .parameters = &set});
  };
  nn::ParameterSet values, exact_values({.dtype = at::kDouble});
  const auto winograd = make("cpu", at::kFloat, values), exact = make("reference", at::kDouble, exact_values);
  values.allocate();
  exact_values.allocate();
  values.initialize(4);
  vary_norms(values, graph);
  copy_values(values, exact_values);
  const auto direct = make("cpu", at::kFloat, values, nn::ConvolutionPolicy::kDirect);
  const auto by_rule = make("cpu", at::kFloat, values, nn::ConvolutionPolicy::kByShape);  // Strassen's products
  const auto sixteen = make("cpu", at::kBFloat16, values);
  const auto sixteen_by_rule = make("cpu", at::kBFloat16, values, nn::ConvolutionPolicy::kByShape);  // AMX, Strassen's

  const at::Tensor images = nn::normal_images({batch, 3, size.height, size.width}).to(at::kBFloat16).to(at::kFloat);
  const at::Tensor expected = exact->forward(images.to(at::kDouble), {});
  const auto error_of = [&](nn::Executor& executor) {
    return norm_of(executor.forward(images, {}).to(at::kDouble) - expected) / norm_of(expected);
  };
  const double error_of_sixteen = error_of(*sixteen);
  EXPECT_LE(error_of(*direct), 5e-6);
  EXPECT_LE(error_of(*winograd), 5e-6);
  EXPECT_LE(error_of(*by_rule), 5e-6);
  const double allowed_of_sixteen = std::ldexp(1.0, -7) * std::sqrt(static_cast<double>(graph.nodes.size()));
  EXPECT_LE(error_of_sixteen, allowed_of_sixteen);
  EXPECT_LE(error_of(*sixteen_by_rule), allowed_of_sixteen);
  RecordProperty("error_of_bfloat16", fmt::format("{:.2e}", error_of_sixteen));
  RecordProperty("error_of_bfloat16_by_rule", fmt::format("{:.2e}", error_of(*sixteen_by_rule)));
  RecordProperty("error_of_float_by_rule", fmt::format("{:.2e}", error_of(*by_rule)));
}

INSTANTIATE_TEST_SUITE_P(Models, FrozenZoo,
                         ::testing::Values(Case{"resnet50_v1.5", 64, 2}, Case{"mobilenet_v2", 64, 2},
                                           Case{"densenet121", 64, 2}, Case{"inception_v3", 107, 2},
                                           Case{"convnext_tiny", 64, 2}, Case{"swin_t", 64, 2}, Case{"ssd300", 257, 1},
                                           Case{"ssd300_vgg16", 268, 1}, Case{"airbench94", 32, 2},
                                           Case{"vit_b_16", 64, 8}),
                         name_of_case);

// The same seed and number of threads: the same bits, whichever plan and memory they run in.
TEST(CpuPlan, RepeatsTrainingBitForBit) {
  core::install_cpu_allocator();
  const nn::Graph graph = build_model("resnet20", "cifar10", {.num_classes = kClasses});
  const auto trained = [&] {
    Replica replica("cpu", graph, at::kFloat);
    replica.set.initialize(4);
    for (int64_t step = 0; step < 3; ++step) {
      replica.step(nn::normal_images({16, 3, 32, 32}), step);
      const at::NoGradGuard no_grad;
      replica.set.values().add_(replica.set.gradients(), -0.1);
      replica.set.values_changed();
    }
    return replica.set.values().clone();
  };
  EXPECT_TRUE(at::equal(trained(), trained()));
}

}  // namespace
}  // namespace trainyard::models::cpu_plan_test
