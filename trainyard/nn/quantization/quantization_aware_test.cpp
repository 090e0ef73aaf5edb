// Quantization-aware training: its forward against the network in 8 bits, its gradients against a definition in double.
#include "trainyard/nn/quantization/quantization_aware.h"

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/value_observer.h"
#include "trainyard/nn/graph/training_options.h"
#include "trainyard/nn/testing/quantizable_networks.h"

namespace trainyard::nn::quantization_aware_test {
namespace {

using namespace quantization_testing;
using ::testing::HasSubstr;

at::Tensor images_for(const Graph& graph, int64_t count) {
  Shape shape = graph.input_shape();
  shape.insert(shape.begin(), count);
  return normal(shape, "images");
}

// A replica that trains a network whose values are those of values_for().
struct Training {
  explicit Training(Graph given) : graph(std::move(given)), sink(set) {
    executor =
        make_executor(kQuantizationAware, graph, {.mode = Mode::kTraining, .parameters = &set, .gradients = &sink});
    set.allocate();
    const ParameterSet values = values_for(graph);
    for (const Segment& segment : values.segments()) {
      set.value(*set.find(segment.spec.name)).copy_(values.value(segment.id));
    }
    for (int b = 0; b < static_cast<int>(values.buffer_count()); ++b) {
      set.buffer(*set.find_buffer(values.buffer_spec(b).name)).copy_(values.buffer(b));
    }
    set.values_changed();
  }
  QuantizationReport calibrate() {
    const std::vector<at::Tensor> batches{images_for(graph, 40)};
    return find_training_scales(graph, set, batches);
  }
  double number(const std::string& buffer) const { return set.buffer(*set.find_buffer(buffer)).item<double>(); }
  at::Tensor gradient(const std::string& parameter) const { return set.gradient(*set.find(parameter)); }

  Graph graph;
  ParameterSet set;
  GradientSink sink;
  std::unique_ptr<Executor> executor;
};

// The value of each node by its name.
struct Values : ValueObserver {
  explicit Values(const Graph& of) : graph(of) {}
  void made(const NodeRun& run, std::span<const at::Tensor> values) override {
    found[graph.nodes[static_cast<size_t>(run.nodes.back())].name] = values.front().detach().clone();
  }
  const Graph& graph;
  std::map<std::string, at::Tensor> found;
};

TEST(QuantizationAware, ForwardIsTheNetworkIn8Bits) {
  for (const Graph& graph : {residual_network(), depthwise_network(), transformer()}) {
    Training training(graph);
    EXPECT_EQ(training.calibrate().trials.size(), 5U);  // ways to find ranges, none that changes weights
    const at::Tensor images = images_for(graph, 6);
    Values trained(graph);
    training.executor->set_observer(&trained);
    training.sink.begin(0, 1);
    const at::Tensor logits = training.executor->forward(images, {});

    const QuantizedModel model = quantize_by_scales(graph, training.set, training_scales(training.set));
    const auto reference = make_executor("reference", model.graph,
                                         {.mode = Mode::kInference,
                                          .frozen = true,
                                          .parameters = model.parameters.get(),
                                          .quantization = model.quantization});
    Values in_8_bits(model.graph);
    reference->set_observer(&in_8_bits);
    const at::Tensor expected = reference->forward(images, {});
    int compared = 0;
    for (const auto& [name, value] : in_8_bits.found) {
      const auto scale = model.quantization->activations.find(name);
      if (scale == model.quantization->activations.end()) continue;
      const auto norm = trained.found.find(name + "_bn");
      const at::Tensor& own = norm != trained.found.end() ? norm->second : trained.found.at(name);
      const at::Tensor steps = (own - value).abs() / scale->second.scale;
      EXPECT_LE(steps.max().item<double>(), 1.01) << graph.name << " " << name;
      EXPECT_LE((steps > 0.5).to(at::kDouble).mean().item<double>(), 0.005) << graph.name << " " << name;
      ++compared;
    }
    EXPECT_GE(compared, 6) << graph.name;
    EXPECT_LT(largest_difference(logits, expected), 0.02) << graph.name;
    EXPECT_GT(largest_difference(reference_logits(graph, training.set, images), expected), 1e-3) << "rounding is seen";
    // An evaluation during the training sees the same.
    const auto evaluation =
        make_executor(kQuantizationAware, graph, {.mode = Mode::kInference, .parameters = &training.set});
    EXPECT_TRUE(evaluation->forward(images, {}).equal(logits.detach())) << graph.name;
  }
}

// What straight-through rounding means, in double: the rounded number, with the derivative of the cut one.
at::Tensor definition_of_rounding(const at::Tensor& x, const ActivationScale& scale) {
  const double step = scale.scale, zero = scale.zero_point;
  const at::Tensor cut = x.clamp((-zero - 0.5) * step, (255 - zero + 0.5) * step);
  return cut + ((x / step).round().clamp(-zero, 255 - zero) * step - cut).detach();
}

at::Tensor definition_of_rounded_weights(const at::Tensor& w) {
  const at::Tensor steps = (w.detach().flatten(1).abs().amax(1) / 127)
                               .to(at::kFloat)
                               .to(at::kDouble)
                               .view(w.dim() == 4 ? at::IntArrayRef{-1, 1, 1, 1} : at::IntArrayRef{-1, 1});
  return w + ((w / steps).round().clamp(-127, 127) * steps - w).detach();
}

TEST(QuantizationAware, GradientsAreThoseOfTheDefinition) {
  GraphBuilder b({.image = {3, 6, 6}, .name = "definition"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 5, .kernel = 3, .padding = Padding::all(1)});
  x = b.activation("relu", b.batch_norm("bn", x));
  Training training(b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 4})));
  static_cast<void>(training.calibrate());
  // Ranges that cut a part of the values.
  for (const auto& [node, scale] : training_scales(training.set)) {
    ASSERT_GT(scale.scale, 0) << node;
    training.set.buffer(*training.set.find_buffer(training_scale_name(node))).mul_(0.5);
  }
  const TrainingScales scales = training_scales(training.set);
  ASSERT_EQ(scales.size(), 3U);  // input, relu, pool
  const at::Tensor images = images_for(training.graph, 5), upstream = normal({5, 4}, "upstream");
  const at::Tensor before = training.set.values().clone();
  const double mean_before = training.set.buffer(*training.set.find_buffer("bn.running_mean")).sum().item<double>();
  training.sink.begin(0, 1);
  (training.executor->forward(images, {}) * upstream).sum().backward();
  training.sink.finish();
  EXPECT_TRUE(training.set.values().equal(before)) << "weights are rounded for the products alone";
  EXPECT_EQ(training.set.buffer(*training.set.find_buffer("bn.running_mean")).sum().item<double>(), mean_before);
  EXPECT_EQ(training_scales(training.set), scales);

  std::map<std::string, at::Tensor> leaves;
  for (const Segment& segment : training.set.segments()) {
    leaves[segment.spec.name] = training.set.value(segment.id).to(at::kDouble).requires_grad_(true);
  }
  const auto buffer = [&](const char* name) {
    return training.set.buffer(*training.set.find_buffer(name)).to(at::kDouble);
  };
  const double epsilon = std::get<BatchNorm>(training.graph.node("bn").op).epsilon;
  const at::Tensor factor = leaves.at("bn.weight") / (buffer("bn.running_var") + epsilon).sqrt();
  const at::Tensor weight = definition_of_rounded_weights(leaves.at("conv.weight") * factor.view({-1, 1, 1, 1}));
  const at::Tensor shift = leaves.at("bn.bias") - buffer("bn.running_mean") * factor;
  at::Tensor y = definition_of_rounding(images.to(at::kDouble), scales.at("input"));
  y = at::conv2d(y, weight, shift, /*stride=*/1, /*padding=*/1).relu();
  const at::Tensor cut = y;
  y = definition_of_rounding(y, scales.at("relu")).mean({2, 3});
  y = definition_of_rounding(y, scales.at("pool"));
  y = at::linear(y, definition_of_rounded_weights(leaves.at("fc.weight")), leaves.at("fc.bias"));
  (y * upstream.to(at::kDouble)).sum().backward();
  EXPECT_GT((cut > 255 * scales.at("relu").scale).sum().item<int64_t>(), 0) << "nothing is cut";
  for (const auto& [name, leaf] : leaves) {
    EXPECT_LT(largest_difference(training.gradient(name), leaf.grad()), 1e-4) << name;
  }
}

TEST(QuantizationAware, NeedsScales) {
  Training training(residual_network());
  const at::Tensor images = images_for(training.graph, 2);
  const auto message = [&] { return core::message_of([&] { (void)training.executor->forward(images, {}); }); };
  EXPECT_THAT(message(), HasSubstr("no scales of 8 bits"));
  EXPECT_THAT(core::message_of([&] { (void)quantize_by_scales(training.graph, training.set, {}); }),
              HasSubstr("no scales of 8 bits"));
  static_cast<void>(training.calibrate());
  EXPECT_EQ(message(), "no error");
  for (const double bad : {-1.0, static_cast<double>(std::numeric_limits<float>::quiet_NaN()), 1e-45}) {
    const at::Tensor scale = training.set.buffer(*training.set.find_buffer("pool1.activation_scale"));
    const at::Tensor good = scale.clone();
    scale.fill_(bad);
    EXPECT_THAT(message(), HasSubstr("pool1")) << bad;
    scale.copy_(good);
  }
  training.set.buffer(*training.set.find_buffer("pool1.activation_zero_point")).fill_(300);
  EXPECT_THAT(message(), HasSubstr("zero point 300"));
}

TEST(QuantizationAware, RefusesScalesOfAnotherGraph) {
  Training training(residual_network());
  static_cast<void>(training.calibrate());
  TrainingScales scales = training_scales(training.set);
  scales["conv9"] = {.scale = 1};
  EXPECT_THAT(core::message_of([&] { (void)quantize_by_scales(training.graph, training.set, scales); },
                               core::ErrorCode::kNotFound),
              HasSubstr("conv9"));
  scales.erase("conv9");
  scales.at("pool1").scale *= 2;  // a max pool, which keeps the scale of its input
  EXPECT_THAT(core::message_of([&] { (void)quantize_by_scales(training.graph, training.set, scales); }),
              HasSubstr("pool1"));
}

// The layers that --dropout and --stochastic_depth add to a training have scales, too. Whoever loads its checkpoint
// builds the network without them.
TEST(QuantizationAware, LeavesOutLayersThatTheTrainingAloneHad) {
  const Graph graph = residual_network();
  Training training(with_stochastic_depth(with_dropout(graph, 0.25), 0.5));
  static_cast<void>(training.calibrate());
  const TrainingScales scales = training_scales(training.set);
  ASSERT_GT(scales.at("fc.dropout").scale, 0);
  ASSERT_GT(scales.at("sum1.stochastic_depth").scale, 0);
  const QuantizedModel model = quantize_by_scales(graph, training.set, scales);
  EXPECT_FALSE(model.quantization->activations.contains("fc.dropout"));
  EXPECT_FALSE(model.quantization->activations.contains("sum1.stochastic_depth"));
  EXPECT_TRUE(model.quantization->weights.contains("fc"));
  // It computes what the evaluations during the training did.
  const at::Tensor images = images_for(graph, 6);
  const auto evaluation =
      make_executor(kQuantizationAware, training.graph, {.mode = Mode::kInference, .parameters = &training.set});
  EXPECT_LT(largest_difference(reference_logits(model.graph, *model.parameters, images, model.quantization),
                               evaluation->forward(images, {})),
            0.02);
  // The graph that was trained keeps them.
  const QuantizedModel with_layers = quantize_by_scales(training.graph, training.set, scales);
  EXPECT_TRUE(with_layers.quantization->activations.contains("fc.dropout"));
}

// As torchvision's VGG and AlexNet, which average their last image where it has another size than at their own one.
Graph network_of_size(int64_t size) {
  GraphBuilder b({.image = {3, size, size}, .name = "pools"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 5, .kernel = 3, .padding = Padding::all(1), .bias = true});
  x = b.max_pool("maxpool", b.activation("relu", x), {.kernel = 2, .stride = 2});
  if (size != 6) x = b.adaptive_average_pool("avgpool", x, 3);
  x = b.dropout("drop", b.flatten("flatten", x));  // AlexNet has one there, VGG none
  x = b.activation("hidden", b.linear("fc0", x, {.out_features = 8}));
  return b.build(b.linear("fc", x, {.out_features = 4}));
}

TEST(QuantizationAware, QuantizesForAnotherImageSize) {
  const auto quantized_for = [](int64_t size, Training& training) {
    static_cast<void>(training.calibrate());
    const Graph graph = network_of_size(size);
    QuantizedModel model = quantize_by_scales(graph, training.set, training_scales(training.set));
    // Of half the size of those that the scales are from: larger values would be cut off.
    const at::Tensor images = images_for(graph, 6) * 0.5;
    EXPECT_LT(largest_difference(reference_logits(model.graph, *model.parameters, images, model.quantization),
                                 reference_logits(graph, training.set, images)),
              0.02)
        << size << ": the network in float";
    return model;
  };
  Training own(network_of_size(6)), larger(network_of_size(8));
  const QuantizedModel with_pool = quantized_for(8, own);
  EXPECT_EQ(with_pool.quantization->activations.at("avgpool"), with_pool.quantization->activations.at("maxpool"));
  EXPECT_TRUE(with_pool.quantization->weights.contains("fc0"));
  // The training at the larger size has rounded the averages alone, whose range is not that of what they average.
  const QuantizedModel without = quantized_for(6, larger);
  EXPECT_TRUE(without.quantization->weights.contains("conv"));
  EXPECT_FALSE(without.quantization->weights.contains("fc0"));
  EXPECT_THAT(without.quantization->in_float.at("fc0"), HasSubstr("no scale in the training"));
}

// A value without a scale stays in float, and what reads it, in the training and in 8 bits.
TEST(QuantizationAware, LeavesInFloatWhatHasNoScale) {
  Training training(residual_network());
  static_cast<void>(training.calibrate());
  for (const char* buffer : {"pool.activation_scale", "pool.activation_zero_point"}) {
    training.set.buffer(*training.set.find_buffer(buffer)).zero_();
  }
  const QuantizedModel model = quantize_by_scales(training.graph, training.set, training_scales(training.set));
  EXPECT_FALSE(model.quantization->weights.contains("fc"));
  EXPECT_TRUE(model.quantization->weights.contains("conv5"));
  EXPECT_THAT(model.quantization->in_float.at("fc"), HasSubstr("no scale in the training"));
  const at::Tensor images = images_for(training.graph, 6);
  Values trained(training.graph);
  training.executor->set_observer(&trained);
  training.sink.begin(0, 1);
  const at::Tensor logits = training.executor->forward(images, {});
  EXPECT_LT(largest_difference(logits, reference_logits(model.graph, *model.parameters, images, model.quantization)),
            0.02);
  // The weights of the layer that reads it are not rounded.
  const auto value = [&](const char* name) { return training.set.value(*training.set.find(name)); };
  EXPECT_LT(largest_difference(logits, at::linear(trained.found.at("pool"), value("fc.weight"), value("fc.bias"))),
            1e-6);
}

// The shift of a norm without a scale is its only variable, and a convolution's bias is one that the mean is taken off.
TEST(QuantizationAware, FoldsBiasesAndNormsWithoutAScale) {
  GraphBuilder b({.image = {3, 6, 6}, .name = "biased"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 5, .kernel = 3, .bias = true});
  x = b.activation("relu", b.batch_norm("conv_bn", x, {.epsilon = 0.125, .scale = false}));
  Training training(b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 4})));
  static_cast<void>(training.calibrate());
  const at::Tensor images = images_for(training.graph, 6);
  training.sink.begin(0, 1);
  const at::Tensor logits = training.executor->forward(images, {});
  const QuantizedModel model = quantize_by_scales(training.graph, training.set, training_scales(training.set));
  EXPECT_LT(largest_difference(logits, reference_logits(model.graph, *model.parameters, images, model.quantization)),
            0.02);
  EXPECT_LT(largest_difference(logits, reference_logits(training.graph, training.set, images)), 0.1)
      << "the network in float";
}

TEST(QuantizationAware, ScalesAreSavedAndLoaded) {
  Training training(residual_network()), other(residual_network());
  static_cast<void>(training.calibrate());
  core::MemoryState state;
  training.set.save(state);
  other.set.load(state);
  EXPECT_EQ(training_scales(other.set), training_scales(training.set));
  EXPECT_GT(training_scales(other.set).at("input").scale, 0);
  const at::Tensor images = images_for(training.graph, 3);
  training.sink.begin(0, 1);
  other.sink.begin(0, 1);
  EXPECT_TRUE(other.executor->forward(images, {}).equal(training.executor->forward(images, {})));
}

TEST(QuantizationAware, RefusesWhatItCannotCompute) {
  ParameterSet set, other;
  const Graph graph = residual_network();
  EXPECT_THAT(core::message_of(
                  [&] { (void)make_executor(kQuantizationAware, graph, {.dtype = at::kBFloat16, .parameters = &set}); },
                  core::ErrorCode::kUnsupported),
              HasSubstr("float on a CPU"));
  // An output for training alone that reads a convolution whose batch norm is folded into it.
  GraphBuilder b({.image = {3, 6, 6}, .name = "auxiliary"});
  const auto x = b.convolution("conv", b.input(), {.out_channels = 5, .kernel = 3});
  const auto y = b.linear("fc", b.global_average_pool("pool", b.batch_norm("bn", x)), {.out_features = 4});
  const auto z = b.linear("head", b.global_average_pool("pool2", x), {.out_features = 4});
  const Graph two = b.build(y, {{"auxiliary", z.id, 0.4}});
  EXPECT_THAT(core::message_of([&] { (void)make_executor(kQuantizationAware, two, {.parameters = &other}); },
                               core::ErrorCode::kUnsupported),
              HasSubstr("conv"));
}

}  // namespace
}  // namespace trainyard::nn::quantization_aware_test
