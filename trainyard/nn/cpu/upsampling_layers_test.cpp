// Transposed convolutions and upsampling against PyTorch's numbers (tools/golden/upsampling_layers.py).
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"

namespace trainyard::nn::upsampling_layers_test {
namespace {

using Value = GraphBuilder::Value;

struct UpsamplingCase {
  Shape image;
  std::function<Value(GraphBuilder&, Value)> layer;
};

UpsamplingCase transposed(Shape image, const TransposedConvolution& op) {
  return {std::move(image), [op](GraphBuilder& b, Value x) { return b.transposed_convolution("layer", x, op); }};
}
UpsamplingCase upsampled(Shape image, Upsample::Kind kind, int64_t factor) {
  return {std::move(image), [=](GraphBuilder& b, Value x) { return b.upsample("layer", x, {kind, factor}); }};
}

// As in the script, by name.
std::map<std::string, UpsamplingCase> cases() {
  return {{"unet", transposed({4, 2, 3}, {.out_channels = 3, .kernel = 2, .stride = 2, .bias = true})},
          {"dcgan", transposed({3, 3, 2}, {.out_channels = 2, .kernel = 4, .stride = 2, .padding = 1})},
          {"uneven", transposed({2, 3, 2}, {.out_channels = 3,
                                            .kernel = {3, 2},
                                            .stride = {3, 2},
                                            .padding = {1, 0},
                                            .output_padding = {2, 1},
                                            .bias = true})},
          {"groups", transposed({4, 2, 3}, {.out_channels = 6,
                                            .kernel = 3,
                                            .stride = 2,
                                            .padding = 1,
                                            .output_padding = 1,
                                            .groups = 2,
                                            .bias = true})},
          {"dilated", transposed({2, 3, 3}, {.out_channels = 2, .kernel = 3, .padding = {1, 2}, .dilation = {1, 2}})},
          {"nearest", upsampled({2, 2, 3}, Upsample::Kind::kNearest, 2)},
          {"nearest3", upsampled({1, 3, 2}, Upsample::Kind::kNearest, 3)},
          {"bilinear", upsampled({2, 3, 4}, Upsample::Kind::kBilinear, 2)},
          {"bilinear3", upsampled({1, 2, 3}, Upsample::Kind::kBilinear, 3)}};
}

at::Tensor wave(at::IntArrayRef shape, double step) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return (at::arange(count, at::kDouble) * step + 0.3).sin().reshape(shape);
}

// PyTorch's numbers by case, and in it by "output", "input", "weight" or "bias".
std::map<std::string, std::map<std::string, std::vector<double>>> golden() {
  std::ifstream file("trainyard/nn/testdata/upsampling_layers.txt");
  std::map<std::string, std::map<std::string, std::vector<double>>> result;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, what;
    words >> name >> what;
    for (double value = 0; words >> value;) result[name][what].push_back(value);
  }
  return result;
}

void expect_golden(const std::string& executor_name, at::ScalarType dtype, double bound) {
  const auto expected = golden();
  ASSERT_EQ(expected.size(), cases().size());
  for (const auto& [name, upsampling] : cases()) {
    GraphBuilder b({.image = upsampling.image, .name = name});
    const Graph graph = b.build(upsampling.layer(b, b.input()));
    ParameterSet set({.dtype = dtype});
    GradientSink sink(set);
    const auto executor = make_executor(executor_name, graph, {.dtype = dtype, .parameters = &set, .gradients = &sink});
    set.allocate();
    std::map<std::string, at::Tensor> actual;
    for (const auto& [variable, step] : std::map<std::string, double>{{"weight", 1.3}, {"bias", 2.1}}) {
      if (const auto id = set.find("layer." + variable)) set.value(*id).copy_(wave(set.value(*id).sizes(), step));
    }
    set.values_changed();
    Shape shape = upsampling.image;
    shape.insert(shape.begin(), 2);
    const at::Tensor images = wave(shape, 0.7).to(dtype).requires_grad_(true);
    sink.begin(0, 1);
    actual["output"] = executor->forward(images, {});
    actual["output"].backward(wave(actual["output"].sizes(), 0.9).to(dtype));
    sink.finish();
    actual["input"] = images.grad();
    for (const Segment& segment : set.segments()) {
      actual[segment.spec.name.substr(6)] = set.gradient(segment.id);
    }
    ASSERT_EQ(actual.size(), expected.at(name).size()) << name;
    for (const auto& [what, numbers] : expected.at(name)) {
      const at::Tensor values = at::tensor(numbers, at::kDouble);
      ASSERT_EQ(actual.at(what).numel(), values.numel()) << name << ", " << what;
      const double error = (actual.at(what).detach().flatten().to(at::kDouble) - values).norm().item<double>();
      EXPECT_LE(error, bound * values.norm().item<double>()) << name << ", " << what;
    }
  }
}

TEST(UpsamplingLayers, AreTorchsInTheReference) {
  expect_golden("reference", at::kDouble, 1e-13);
}

TEST(UpsamplingLayers, AreTorchsInTheCpuPlan) {
  expect_golden("cpu", at::kFloat, 1e-6);
}

}  // namespace
}  // namespace trainyard::nn::upsampling_layers_test
