// One element that is not finite: what becomes not finite, and how, must be what PyTorch's operators make of it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/core.h>

#include "trainyard/nn/testing/conformance_rig.h"
#include "trainyard/nn/testing/naive_layers.h"

namespace trainyard::nn {

using conformance::graph_of;
using conformance::images_of;
using conformance::kRandom;
using conformance::Rig;

namespace {

constexpr int64_t kBatch = 2;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

// Elements [first, first + count) of the input, or of a parameter or buffer, become `value`.
struct Spoiled {
  std::string name;  // "input", or of a parameter or buffer
  int64_t first = 0, count = 1;
  double value = kNan;
};

std::string text(const Spoiled& s) {
  return fmt::format("{} at {} of {}", s.value,
                     s.count > 1 ? fmt::format("{} and on", s.first) : std::to_string(s.first), s.name);
}

// The first, the last and one in the middle; of the input a plane, too: windows that hold nothing else.
std::vector<Spoiled> spoiled_cases(const LayerCase& layer, const ParameterSet& set, bool buffers) {
  std::vector<Spoiled> cases;
  const auto add = [&](const std::string& name, int64_t elements) {
    for (const int64_t place : std::vector<int64_t>{0, elements * 3 / 8, elements - 1}) {
      for (const double value : {kNan, kInfinity}) cases.push_back({name, place, 1, value});
    }
  };
  const int64_t plane = layer.image[1] * layer.image[2], elements = kBatch * layer.image[0] * plane;
  add("input", elements);
  for (const int64_t place : {int64_t{0}, elements * 5 / 8, elements - 1}) {
    cases.push_back({"input", place, 1, -kInfinity});
  }
  cases.push_back({"input", elements - plane, plane, kNan});
  cases.push_back({"input", elements - plane, plane, -kInfinity});
  for (const Segment& segment : set.segments()) add(segment.spec.name, segment.count);
  for (int i = 0; buffers && i < static_cast<int>(set.buffer_count()); ++i) {
    if (set.buffer(i).is_floating_point()) add(set.buffer_spec(i).name, set.buffer(i).numel());
  }
  return cases;
}

using Tensors = std::map<std::string, at::Tensor>;

// A rig whose values are what they were after each run.
class Spoiler {
 public:
  Spoiler(const ExecutorUnderTest& executor, const Graph& graph, Mode mode, at::ScalarType dtype,
          ConvolutionPolicy convolutions = ConvolutionPolicy::kDirect)
      : training_(mode == Mode::kTraining),
        rig_(executor.name, graph, mode, dtype, executor.device, !training_ && executor.name != "reference",
             {.convolutions = convolutions, .fusions = executor.kernels.fusions}),
        values_(rig_.set.values().clone()) {
    for (int i = 0; i < static_cast<int>(rig_.set.buffer_count()); ++i) buffers_.push_back(rig_.set.buffer(i).clone());
  }

  const ParameterSet& set() const { return rig_.set; }

  // The outputs of inference; outputs, gradients and buffers of training.
  Tensors run(const at::Tensor& images, const Spoiled& spoiled) {
    const at::Tensor input = spoil(images, spoiled);
    Tensors results;
    if (training_) {
      Rig::Result result = rig_.run(input);
      for (auto& [name, gradient] : result.gradients) results["gradient of " + name] = gradient;
      results["output"] = result.output;
      for (int i = 0; i < static_cast<int>(rig_.set.buffer_count()); ++i) {
        results[rig_.set.buffer_spec(i).name] = rig_.set.buffer(i).clone();
      }
    } else {
      const auto options = rig_.set.values().options().dtype(rig_.executor->context().dtype);
      results["output"] = rig_.executor->forward(input.to(options), kRandom);
    }
    for (auto& [name, result] : results) result = result.detach().cpu().to(at::kDouble).contiguous();
    restore();
    return results;
  }

  // The output of naive_layers.h. `graph`: the rig's, or one with the same parameters.
  at::Tensor by_definition(const Graph& graph, Mode mode, const at::Tensor& images, const Spoiled& spoiled) {
    const at::Tensor input = spoil(images, spoiled);
    naive::Buffers buffers = naive::buffers_of(rig_.set);
    const std::vector<double> data = naive::forward(graph, rig_.set, input, mode, kRandom, buffers).data;
    restore();
    return at::tensor(data, at::kDouble);
  }

  // For operations that are linear in the changed number: a result depends on it if another finite number changes the
  // result. Padding's zeros that meet it change nothing.
  Tensors by_dependence(const at::Tensor& images, const Spoiled& spoiled) {
    const double own = tensor(spoiled.name).view({-1})[spoiled.first].item<double>();
    Spoiled finite = spoiled;
    finite.value = own;
    Tensors before = run(images, finite);
    finite.value = own + 1;
    for (auto& [name, changed] : run(images, finite)) {
      at::Tensor& result = before.at(name);
      const at::Tensor change = changed - result;
      result = at::where(change == 0, result, change * spoiled.value).contiguous();
    }
    return before;
  }

 private:
  // Returns the input; parameters and buffers change in place.
  at::Tensor spoil(const at::Tensor& images, const Spoiled& spoiled) {
    at::Tensor input = images.clone();
    const at::Tensor target = spoiled.name == "input" ? input : tensor(spoiled.name);
    target.view({-1}).narrow(0, spoiled.first, spoiled.count).fill_(spoiled.value);
    rig_.set.values_changed();
    return input;
  }
  void restore() {
    rig_.set.values().copy_(values_);
    for (size_t i = 0; i < buffers_.size(); ++i) rig_.set.buffer(static_cast<int>(i)).copy_(buffers_[i]);
    rig_.set.values_changed();
  }
  at::Tensor tensor(const std::string& name) {
    if (const auto parameter = rig_.set.find(name)) return rig_.set.value(*parameter);
    return rig_.set.buffer(rig_.set.find_buffer(name).value());
  }

  bool training_;
  Rig rig_;
  at::Tensor values_;
  std::vector<at::Tensor> buffers_;
};

// Where results may be NaN though what is expected is not.
enum class Nan { kNowhere, kInSpoiledPlanes, kAnywhere };

struct Rule {
  bool kinds = true;  // the same infinity, or NaN; else it is enough that neither is finite
  Nan nan = Nan::kNowhere;
  int64_t plane = 1;  // elements of a channel of a sample
};

// Says at which places `actual` is not finite in no way that one of `expected` is, or finite where none is; empty: at
// none.
std::string difference(const at::Tensor& actual, const std::vector<at::Tensor>& expected, const Rule& rule) {
  const at::Tensor finite = at::isfinite(expected[0]).contiguous();
  const auto spoiled_plane = [&](int64_t i) {
    const int64_t first = i / rule.plane * rule.plane;
    return !finite.view({-1}).narrow(0, first, rule.plane).all().item<bool>();
  };
  int64_t differ = 0;
  std::string first;
  for (int64_t i = 0; i < actual.numel(); ++i) {
    const double value = actual.const_data_ptr<double>()[i];
    bool found = false;
    for (const at::Tensor& tensor : expected) {
      const double one = tensor.const_data_ptr<double>()[i];
      const bool same_kind = std::isnan(value)   ? std::isnan(one)
                             : std::isinf(value) ? value == one
                                                 : std::isfinite(one);
      found = found || same_kind || (!rule.kinds && !std::isfinite(value) && !std::isfinite(one));
    }
    found = found || (std::isnan(value) &&
                      (rule.nan == Nan::kAnywhere || (rule.nan == Nan::kInSpoiledPlanes && spoiled_plane(i))));
    if (found) continue;
    if (differ++ == 0) first = fmt::format("at {}: {}, expected {}", i, value, expected[0].const_data_ptr<double>()[i]);
  }
  return differ == 0 ? "" : fmt::format("{} of {} places, first {}", differ, actual.numel(), first);
}

// The largest difference of elements that are finite in both, as a part of the largest of them.
double finite_error(const at::Tensor& actual, const at::Tensor& expected) {
  if (actual.numel() == 0) return 0;
  const at::Tensor both = at::isfinite(actual).logical_and(at::isfinite(expected));
  const at::Tensor zero = at::zeros_like(actual);
  const at::Tensor a = at::where(both, actual, zero), b = at::where(both, expected, zero);
  return (a - b).abs().max().item<double>() / std::max(b.abs().max().item<double>(), 1e-2);
}

template <typename Operation>
bool has(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const Node& node) { return std::holds_alternative<Operation>(node.op); });
}

// What conformance_suite.h leaves open.
Rule rule_for(const Graph& graph, const std::string& result, const Spoiled& spoiled) {
  Rule rule{.kinds = !result.starts_with("gradient")};
  const bool weight = spoiled.name != "input";
  // Factors that are infinite: a norm's are folded, as x * factor + shift in PyTorch, into a convolution where frozen.
  if (has<BatchNorm>(graph) && weight && std::isinf(spoiled.value)) rule = {.kinds = false, .nan = Nan::kAnywhere};
  // Weights of about e^-100 are the smallest numbers or 0: times infinity, infinity or NaN.
  for (const Node& node : graph.nodes) {
    const auto* const attention = std::get_if<Attention>(&node.op);
    if (attention != nullptr && attention->shift > 0) rule.kinds = false;
  }
  const bool convolves = has<Convolution>(graph) || has<TransposedConvolution>(graph);
  if (convolves && weight && rule.nan == Nan::kNowhere) {
    rule.nan = Nan::kInSpoiledPlanes;
    const Shape& map = result == "output" ? graph.nodes.at(graph.nodes.size() - 2).shape : graph.input_shape();
    if (result == "output" || result == "gradient of input") rule.plane = map.at(1) * map.at(2);
  }
  return rule;
}

void expect_pytorchs_spread(const ConformanceCase& tested_case, Mode mode, at::ScalarType dtype) {
  const auto& [executor, layer] = tested_case;
  const Graph graph = graph_of(layer);
  const ExecutorUnderTest reference{.name = "reference"};
  std::vector<std::unique_ptr<Spoiler>> allowed;
  allowed.push_back(std::make_unique<Spoiler>(reference, graph, mode, at::kFloat));
  if (layer.padded) {
    allowed.push_back(std::make_unique<Spoiler>(reference, graph_of(layer, layer.padded), mode, at::kFloat));
  }
  const bool linear = std::holds_alternative<Convolution>(graph.nodes.at(1).op) && graph.nodes.size() == 3;
  Spoiler tested(executor, graph, mode, dtype);
  const at::Tensor images = images_of(layer, kBatch).to(dtype).to(at::kFloat);
  for (const Spoiled& spoiled : spoiled_cases(layer, tested.set(), mode == Mode::kInference)) {
    std::map<std::string, std::vector<at::Tensor>> expected;
    for (const auto& one : allowed) {
      for (const auto& [name, result] : one->run(images, spoiled)) expected[name].push_back(result);
    }
    if (linear && spoiled.name != "input") {
      for (const auto& [name, result] : allowed[0]->by_dependence(images, spoiled)) expected[name].push_back(result);
    }
    for (const auto& [name, result] : tested.run(images, spoiled)) {
      const std::string where = fmt::format(
          "{} in {}, {}, {}", name, mode == Mode::kTraining ? "training" : "inference", toString(dtype), text(spoiled));
      EXPECT_EQ(difference(result, expected.at(name), rule_for(graph, name, spoiled)), "") << where;
      if (name != "output") continue;  // gradients by inputs that are NaN: PyTorch's own vectors and scalars differ
      EXPECT_LE(finite_error(result, expected.at(name)[0]), dtype == at::kFloat ? 1e-3 : 0.1) << where;
    }
  }
}

}  // namespace

TEST_P(LayerConformance, NonFiniteElementsSpreadAsInPyTorch) {
  const auto& [executor, layer] = GetParam();
  if (executor.name == "reference") return;  // it is PyTorch: the next test
  const Graph graph = graph_of(layer);
  // Elsewhere these are ATen's and cuDNN's, whose own kernels differ: one of cuDNN's for half makes 0 of -infinity.
  const bool foreign = has<Convolution>(graph) || has<TransposedConvolution>(graph) || has<Attention>(graph);
  if (executor.name != "cpu" && foreign) return;
  for (const Mode mode : {Mode::kTraining, Mode::kInference}) {
    for (const at::ScalarType dtype : executor.dtypes) {
      if (!layer.sixteen_bits && has<BatchNorm>(graph) && at::isReducedFloatingType(dtype)) continue;
      expect_pytorchs_spread(GetParam(), mode, dtype);
    }
  }
}

// The reference in double against loops by definition.
TEST_P(LayerConformance, NonFiniteElementsSpreadByTheDefinition) {
  const auto& [executor, layer] = GetParam();
  if (executor.name != "reference") return;  // the others are held to it
  const at::Tensor images = images_of(layer, kBatch);
  for (const Mode mode : {Mode::kTraining, Mode::kInference}) {
    const Graph graph = graph_of(layer), padded = layer.padded ? graph_of(layer, layer.padded) : graph;
    Spoiler tested(executor, graph, mode, at::kDouble);
    for (const Spoiled& spoiled : spoiled_cases(layer, tested.set(), mode == Mode::kInference)) {
      const std::vector<at::Tensor> expected{tested.by_definition(graph, mode, images, spoiled),
                                             tested.by_definition(padded, mode, images, spoiled)};
      EXPECT_EQ(difference(tested.run(images, spoiled).at("output"), expected, rule_for(graph, "output", spoiled)), "")
          << (mode == Mode::kTraining ? "training" : "inference") << ", " << text(spoiled);
    }
  }
}

// A Winograd convolution may spread NaN, not hide it, and not beyond a sample.
TEST_P(LayerConformance, WinogradKeepsNonFiniteElementsInTheirSample) {
  const auto& [executor, layer] = GetParam();
  const Graph graph = graph_of(layer);
  if (executor.name != "cpu" || !std::holds_alternative<Convolution>(graph.nodes.at(1).op)) return;
  Spoiler exact({.name = "reference"}, graph, Mode::kInference, at::kDouble);
  for (const at::ScalarType dtype : executor.dtypes) {
    Spoiler tested(executor, graph, Mode::kInference, dtype, ConvolutionPolicy::kWinograd);
    const at::Tensor images = images_of(layer, kBatch).to(dtype).to(at::kDouble);
    const int64_t sample = images.numel() / kBatch;
    for (const Spoiled& spoiled : spoiled_cases(layer, tested.set(), false)) {
      const at::Tensor actual = tested.run(images.to(at::kFloat), spoiled).at("output");
      const at::Tensor expected = exact.by_definition(graph, Mode::kInference, images, spoiled).view(actual.sizes());
      const at::Tensor hidden = at::isfinite(actual).logical_and(at::isfinite(expected).logical_not());
      EXPECT_EQ(hidden.sum().item<int64_t>(), 0) << toString(dtype) << ", " << text(spoiled);
      if (spoiled.name != "input") continue;
      EXPECT_TRUE(at::isfinite(actual[1 - spoiled.first / sample]).all().item<bool>())
          << toString(dtype) << ", " << text(spoiled);
    }
  }
}

}  // namespace trainyard::nn
