// Whole models in 8 bits: the CPU plan against the definition, which the reference executor computes.

#include <cctype>
#include <cmath>
#include <memory>
#include <ostream>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/core/random/random.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/node_observer.h"
#include "trainyard/nn/testing/drawn_values.h"
#include "trainyard/nn/testing/quantization.h"

namespace trainyard::models::quantized_zoo_test {
namespace {

// Weights that keep the size of activations, so that there is something to round in the last layer, too.
void fill_weights(nn::ParameterSet& set) {
  for (const nn::Segment& segment : set.segments()) {
    const nn::Shape& shape = segment.spec.shape;
    if (shape.size() != 2 && shape.size() != 4) continue;
    const double fan_in = static_cast<double>(segment.count) / static_cast<double>(shape[0]);
    core::RandomStream stream(9, segment.spec.name);
    auto* const values = set.value(segment.id).data_ptr<float>();
    const auto largest = static_cast<float>(std::sqrt(4 / fan_in));
    for (int64_t i = 0; i < segment.count; ++i) values[i] = stream.uniform(-largest, largest);
  }
  set.values_changed();
}

struct Case {
  std::string model;
  nn::Size2d image_size;
  bool exact = false;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.model;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

struct LayerCount : nn::NodeObserver {
  void ran(const nn::NodeRun& run) override {
    const bool layer = run.kernel.starts_with("conv") || run.kernel.starts_with("linear");
    if (layer) ++(run.kernel.find("int8") != std::string_view::npos ? in_8_bits : in_float);
  }
  int in_8_bits = 0, in_float = 0;
};

class QuantizedZoo : public ::testing::TestWithParam<Case> {};

// Scales that are powers of two, and batch norms that change nothing, make the float numbers of networks of
// convolutions, sums and ReLU exact, and their logits equal, bit for bit. In the others rounding puts a few numbers on
// the other side of a step, and networks of many layers spread that until it is as large as the noise of 8 bits itself.
TEST_P(QuantizedZoo, AgreesWithTheDefinition) {
  core::install_cpu_allocator();
  const auto& [model, size, exact] = GetParam();
  nn::Graph graph = build_model(model, first_dataset_with(model), {.num_classes = 10, .image_size = size});
  for (nn::Node& node : graph.nodes) {
    if (auto* const norm = std::get_if<nn::BatchNorm>(&node.op); norm != nullptr && exact) norm->epsilon = 0;
  }
  nn::ParameterSet set;
  const auto make = [&](const std::string& name, std::shared_ptr<const nn::Quantization> scales) {
    return nn::make_executor(
        name, graph,
        {.mode = nn::Mode::kInference, .frozen = true, .parameters = &set, .quantization = std::move(scales)});
  };
  const auto floats = make("cpu", nullptr);
  set.allocate();
  set.initialize(4);
  fill_weights(set);
  const at::Tensor images = nn::normal_images({3, 3, size.height, size.width});
  const auto scales = std::make_shared<nn::Quantization>(nn::testing::quantization_of(graph, set, images, {}, exact));
  const auto cpu = make("cpu", scales), reference = make("reference", scales);

  const at::Tensor expected = reference->forward(images, {}), actual = cpu->forward(images, {});
  const double cost = distance(expected, floats->forward(images, {})), error = distance(actual, expected);
  RecordProperty("cost_of_8_bits", fmt::format("{:.2e}", cost));
  RecordProperty("error", fmt::format("{:.2e}", error));
  EXPECT_LE(error, exact ? 0 : 1.5 * cost);
  EXPECT_LT(cost, 0.5) << "8 bits have lost the network: nothing was compared";

  LayerCount count;
  cpu->set_observer(&count);
  EXPECT_TRUE(at::equal(cpu->forward(images, {}), actual));
  EXPECT_EQ(count.in_float, 0);
  EXPECT_EQ(static_cast<size_t>(count.in_8_bits), scales->weights.size());
  cpu->set_observer(nullptr);
  EXPECT_TRUE(at::equal(cpu->forward(images.slice(0, 0, 1), {}), actual.slice(0, 0, 1)));
}

INSTANTIATE_TEST_SUITE_P(Models, QuantizedZoo,
                         ::testing::Values(Case{"resnet20", 32, true}, Case{"resnet50_v1.5", 64, true},
                                           Case{"mobilenet_v2", 64, true}, Case{"mobilenet_v3_large", 64},
                                           Case{"densenet121", 64, true}, Case{"squeezenet1_1", 64, true},
                                           Case{"shufflenet_v2_x1_0", 64, true}, Case{"efficientnet_b0", 64},
                                           Case{"convnext_tiny", 64}, Case{"vit_b_16", 32}),
                         [](const auto& tested) {
                           std::string name = tested.param.model;
                           std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
                           return name;
                         });

}  // namespace
}  // namespace trainyard::models::quantized_zoo_test
