// A model on drawn weights against golden values of another program's same network: logits of evaluation and gradients
// of training, by files that scripts of tools/golden write (torchvision_models.py explains the lines, drawn.py the
// numbers).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/draw.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"

namespace trainyard::models {

inline constexpr int64_t kClasses = 10, kBatch = 2, kPeriod = 1000003;

// Fills a contiguous tensor of double with factor * draw + offset, rounded to float.
inline void fill_drawn(const at::Tensor& tensor, const std::string& name, double factor = 1, double offset = 0) {
  const uint64_t identity = core::stable_hash(name);
  auto* const data = tensor.data_ptr<double>();
  const int64_t period = std::min(tensor.numel(), kPeriod);
  for (int64_t i = 0; i < period; ++i) data[i] = static_cast<float>(offset + factor * core::draw(identity, i));
  for (int64_t i = period; i < tensor.numel(); i += period) {
    std::copy_n(data, std::min(period, tensor.numel() - i), data + i);
  }
}

inline at::Tensor drawn(const std::string& name, at::IntArrayRef shape) {
  at::Tensor tensor = at::empty(shape, at::kDouble);
  fill_drawn(tensor, name);
  return tensor;
}

// The product of a flat tensor with draw(name).
inline double product_with_drawn(const at::Tensor& flat, const std::string& name) {
  const at::Tensor numbers = drawn(name, {std::min(flat.numel(), kPeriod)});
  double sum = 0;
  for (const at::Tensor& part : flat.split(kPeriod)) {
    sum += part.dot(numbers.narrow(0, 0, part.numel())).item<double>();
  }
  return sum;
}

inline void set_start(const at::Tensor& tensor, const std::string& name) {
  if (tensor.dim() > 1) {
    fill_drawn(tensor, name, std::sqrt(6.0 / static_cast<double>(tensor[0].numel())));
  } else if (name.ends_with("weight")) {
    fill_drawn(tensor, name, 0.5, 1);
  } else if (name.ends_with("running_var")) {
    fill_drawn(tensor, name, 0.5, 1.5);
  } else {
    fill_drawn(tensor, name, 0.25);
  }
}

struct Gradient {
  std::string shape;
  double norm = 0, probe = 0;
};

struct Golden {
  int64_t parameters = 0;  // at 1,000 classes, where the file says so
  int64_t size = 64;       // height and width of the images
  int64_t batch = kBatch;
  int64_t every = 1;  // of so many outputs one is in `logits`
  std::vector<double> logits;
  double norm = 0, probe = 0;  // of all outputs, where not all are in `logits`
  std::map<std::string, Gradient> gradients;
};

// `path`: from the sources' root.
inline Golden read_golden(const std::string& path) {
  std::ifstream file(std::string(TRAINYARD_SOURCE_DIR "/") + path);
  Golden golden;
  std::string line, kind;
  while (std::getline(file, line)) {
    std::istringstream text(line);
    text >> kind;
    if (kind == "parameters") text >> golden.parameters;
    if (kind == "size") text >> golden.size;
    if (kind == "batch") text >> golden.batch;
    if (kind == "every") text >> golden.every;
    if (kind == "outputs") text >> golden.norm >> golden.probe;
    if (kind == "logits") {
      for (double logit = 0; text >> logit;) golden.logits.push_back(logit);
    }
    if (kind == "gradient") {
      std::string name;
      Gradient gradient;
      text >> name;
      std::getline(text, gradient.shape, ']');
      gradient.shape = gradient.shape.substr(1) + "]";
      text >> gradient.norm >> gradient.probe;
      golden.gradients[name] = gradient;
    }
  }
  return golden;
}

// Without dropout and stochastic depth.
inline nn::Graph without_randomness(nn::Graph graph) {
  for (nn::Node& node : graph.nodes) {
    if (auto* dropout = std::get_if<nn::Dropout>(&node.op)) dropout->drop = 0;
    if (auto* depth = std::get_if<nn::StochasticDepth>(&node.op)) depth->drop = 0;
  }
  return graph;
}

// A set in double and executors on it: evaluation in float, training in double.
struct Rig {
  explicit Rig(const nn::Graph& graph) : set({.dtype = at::kDouble}), sink(set) {
    training = nn::make_executor("reference", without_randomness(graph),
                                 {.dtype = at::kDouble, .parameters = &set, .gradients = &sink});
    set.allocate();
    evaluation = nn::make_executor("reference", nn::main_output_graph(graph),
                                   {.mode = nn::Mode::kInference, .parameters = &set});
    for (const nn::Segment& segment : set.segments()) {
      set_start(set.value(segment.id), segment.spec.name);
    }
    for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) set_start(set.buffer(i), set.buffer_spec(i).name);
  }
  nn::ParameterSet set;
  nn::GradientSink sink;
  std::unique_ptr<nn::Executor> evaluation, training;
};

// Logits within 1e-4 of the largest, gradients within 1e-3 by norm and probe.
inline void expect_golden(const nn::Graph& graph, const Golden& golden) {
  Rig rig(graph);
  const int64_t size = graph.input_shape()[1];
  const at::Tensor images = drawn("images", {golden.batch, 3, size, size});
  {
    const at::Tensor outputs = rig.evaluation->forward(images, {}).flatten().to(at::kDouble);
    const at::Tensor logits = outputs.slice(0, 0, std::nullopt, golden.every);
    const at::Tensor expected = at::tensor(golden.logits, at::kDouble);
    if (golden.every > 1) {
      EXPECT_NEAR(outputs.norm().item<double>(), golden.norm, 1e-5 * golden.norm);
      EXPECT_NEAR(product_with_drawn(outputs, "probe outputs"), golden.probe, 1e-5 * golden.norm);
    }
    ASSERT_EQ(logits.sizes(), expected.sizes());
    EXPECT_LE((logits - expected).abs().max().item<double>(), 1e-4 * expected.abs().max().item<double>());
  }
  rig.sink.begin(0, 1);
  const core::NamedTensors outputs = rig.training->run({{"images", images}}, {});
  at::Tensor loss;
  for (const nn::GraphOutput& output : graph.outputs) {
    const at::Tensor values = outputs[output.name];
    const std::string cotangent = loss.defined() ? "cotangent " + output.name : "cotangent";
    const at::Tensor term = (values * drawn(cotangent, values.sizes())).mean() * output.loss_weight;
    loss = loss.defined() ? loss + term : term;
  }
  loss.backward();
  rig.sink.finish();
  double largest = 0;
  for (const auto& [name, gradient] : golden.gradients) largest = std::max(largest, gradient.norm);
  for (const nn::Segment& segment : rig.set.segments()) {
    const std::string& name = segment.spec.name;
    const at::Tensor gradient = rig.set.gradient(*rig.set.find(name)).flatten();
    const Gradient& expected = golden.gradients.at(name);
    // A bias in front of batch norm has none.
    const double allowed = 1e-3 * std::max(expected.norm, 1e-9 * largest);
    EXPECT_NEAR(gradient.norm().item<double>(), expected.norm, allowed) << name;
    EXPECT_NEAR(product_with_drawn(gradient, "probe " + name), expected.probe, allowed) << name;
  }
}

// A test for each golden network. VGGs have 2 GB of values and gradients: their pages are reused. Tests run at the same
// time, each on one thread.
class GoldenNetworkTest : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    core::install_cpu_allocator();
    at::set_num_threads(1);
  }
};

}  // namespace trainyard::models
