// Networks that compute in 8 bits on the CPU plan, against the reference executor, which computes them by definition:
// every kind of unit, memory that is written over, values that are not finite, weights that change, observers.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/value_observer.h"
#include "trainyard/nn/testing/drawn_values.h"
#include "trainyard/nn/testing/kernel_names.h"
#include "trainyard/nn/testing/quantization.h"

namespace trainyard::nn::quantized_test {
namespace {

using ::testing::Contains, ::testing::HasSubstr, ::testing::Not;
using testing::kernels_of;
using Value = GraphBuilder::Value;
using Function = Activation::Function;

// A graph with values, its scales, which are found with so many images, and executors of it.
struct Model {
  explicit Model(Graph given, const std::set<std::string>& in_float = {}, int64_t calibration_images = 6)
      : graph(std::move(given)) {
    static_cast<void>(make_executor("reference", graph, {.mode = Mode::kInference, .parameters = &set}));
    set.allocate();
    fill_parameters(set);
    scales = std::make_shared<Quantization>(testing::quantization_of(graph, set, input(calibration_images), in_float));
  }
  // Returns the same images at each call; a larger batch begins with those of a smaller one.
  at::Tensor input(int64_t batch) const {
    Shape shape = graph.input_shape();
    shape.insert(shape.begin(), batch);
    at::Tensor images = at::empty(shape, at::kFloat);
    fill_uniform(images, "images", 0.2, 1);
    return images;
  }
  std::unique_ptr<Executor> make(const std::string& name, at::ScalarType dtype = at::kFloat,
                                 const KernelOptions& kernels = {}) {
    return make_executor(name, graph,
                         {.dtype = dtype,
                          .mode = Mode::kInference,
                          .frozen = true,
                          .kernels = kernels,
                          .parameters = &set,
                          .quantization = scales});
  }

  Graph graph;
  ParameterSet set;
  std::shared_ptr<Quantization> scales;
};

// Compares outputs that are rounded to the main output's scale: most are equal, no element is `most` steps away. What a
// kernel adds up in float is a rounding error away from the definition's double, which moves a number that lies between
// two steps to the other one.
void expect_near(const Model& model, const at::Tensor& actual, const at::Tensor& expected, double most = 1,
                 double part = 0.01) {
  const auto found = model.scales->activations.find(model.graph.nodes[static_cast<size_t>(model.graph.output())].name);
  ASSERT_NE(found, model.scales->activations.end());
  const at::Tensor steps = (actual - expected).abs() / found->second.scale;
  EXPECT_LE(steps.max().item<double>(), most + 0.01);
  EXPECT_LE((steps > 0.5).to(at::kFloat).mean().item<double>(), part + 1.0 / static_cast<double>(steps.numel()));
  EXPECT_GT(expected.to(at::kFloat).std().item<double>(), 10 * found->second.scale) << "the network is dead";
}

struct Case {
  std::string name;
  std::function<Value(GraphBuilder&, Value)> build;
  int64_t channels = 3;
  std::string kernel{};  // one of those that run
  bool only_8_bits = true;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name;
}

Convolution square(int64_t channels, int64_t kernel = 3, int64_t stride = 1) {
  return {
      .out_channels = channels, .kernel = kernel, .stride = stride, .padding = Padding::all(kernel / 2), .bias = true};
}

Convolution in_groups(int64_t channels, int64_t groups, int64_t kernel = 3, int64_t stride = 1) {
  Convolution op = square(channels, kernel, stride);
  op.groups = groups;
  return op;
}

Value conv(GraphBuilder& b, const std::string& name, Value x, const Convolution& op) {
  return b.convolution(name, x, op);
}

Value conv_relu(GraphBuilder& b, const std::string& name, Value x, const Convolution& op) {
  return b.activation(name + ".relu", b.convolution(name, x, op));
}

Case with_activation(std::string name, Function function, std::string kernel) {
  return {std::move(name),
          [function](GraphBuilder& b, Value x) {
            return b.activation("activation", conv(b, "second", conv_relu(b, "first", x, square(19)), square(21)),
                                function);
          },
          3, std::move(kernel)};
}

Case one(std::string name, int64_t channels, std::string kernel, std::function<Value(GraphBuilder&, Value)> build) {
  return {std::move(name), std::move(build), channels, std::move(kernel)};
}

Convolution dilated(int64_t channels) {
  Convolution op = square(channels);
  op.dilation = 2;
  op.padding = Padding::all(2);
  return op;
}

Value excited(GraphBuilder& b, Value x) {
  x = conv_relu(b, "first", x, square(20));
  Value gate = b.linear("gate", b.global_average_pool("pool", x), {.out_features = 20});
  x = b.multiply("multiply", x, b.activation("sigmoid", gate, Function::kSigmoid));
  return conv(b, "last", x, square(17, 1));
}

// Adds up a map and convolutions of it.
Value sum_of(GraphBuilder& b, Value x, int count) {
  x = conv_relu(b, "first", x, square(20));
  std::vector<Value> terms{x};
  for (int i = 1; i < count; ++i) terms.push_back(conv(b, "term" + std::to_string(i), x, square(20, 1)));
  return b.activation("relu", b.add("add", terms));
}

std::vector<Case> cases() {
  return {
      with_activation("Relu", Function::kRelu, " + relu"),
      with_activation("Relu6", Function::kRelu6, " + relu6"),
      with_activation("Silu", Function::kSilu, " + silu"),
      with_activation("HardSwish", Function::kHardSwish, " + hard_swish"),
      with_activation("HardSigmoid", Function::kHardSigmoid, " + hard_sigmoid"),
      with_activation("Sigmoid", Function::kSigmoid, " + sigmoid"),
      with_activation("Gelu", Function::kGelu, " + gelu"),
      with_activation("Tanh", Function::kTanh, " + tanh"),
      one("FirstOfAnImage", 3, "conv 7x7 int8", [](auto& b, Value x) { return conv(b, "c", x, square(18, 7, 2)); }),
      one("FirstOfGray", 1, "conv 3x3 int8", [](auto& b, Value x) { return conv(b, "c", x, square(18)); }),
      // Images of more than four channels, of groups, and maps of few channels are no images of fours.
      one("FirstOfFive", 5, "conv 3x3 int8", [](auto& b, Value x) { return conv(b, "c", x, square(18)); }),
      one("FirstIsDepthwise", 3, "conv 3x3 groups 3",
          [](auto& b, Value x) { return conv(b, "c", x, in_groups(3, 3)); }),
      one("OfAMapOfThree", 3, "conv 1x1 int8",
          [](auto& b, Value x) { return conv(b, "b", conv_relu(b, "a", x, square(3)), square(18, 1)); }),
      one("Wide", 37, "conv 3x3 int8", [](auto& b, Value x) { return conv(b, "c", x, square(35)); }),
      one("Pointwise", 37, "conv 1x1 int8", [](auto& b, Value x) { return conv(b, "c", x, square(35, 1)); }),
      one("PointwiseStrided", 32, "conv 1x1 int8", [](auto& b, Value x) { return conv(b, "c", x, square(64, 1, 2)); }),
      one("Strided", 16, "conv 3x3 int8", [](auto& b, Value x) { return conv(b, "c", x, square(48, 3, 2)); }),
      one("Dilated", 16, "conv 3x3 int8", [](auto& b, Value x) { return conv(b, "c", x, dilated(48)); }),
      one("Depthwise", 37, "conv 3x3 groups 37", [](auto& b, Value x) { return conv(b, "c", x, in_groups(37, 37)); }),
      one("DepthwiseStrided", 32, "conv 5x5 groups 32",
          [](auto& b, Value x) { return conv_relu(b, "c", x, in_groups(32, 32, 5, 2)); }),
      one("Groups", 32, "conv 3x3 groups 4", [](auto& b, Value x) { return conv(b, "c", x, in_groups(64, 4)); }),
      one("OddGroups", 15, "conv 3x3 groups 3", [](auto& b, Value x) { return conv(b, "c", x, in_groups(21, 3)); }),
      one("BatchNorm", 16, " + batch norm + relu",
          [](auto& b, Value x) { return b.activation("relu", b.batch_norm("norm", conv(b, "c", x, square(32)))); }),
      one("Residual", 3, " + add + relu",
          [](auto& b, Value x) {
            x = conv_relu(b, "first", x, square(20));
            x = b.activation("relu", b.add("add", {x, conv(b, "second", x, square(20))}));
            return b.add("again", {conv(b, "third", conv_relu(b, "inner", x, square(24, 1)), square(20, 1)), x});
          }),
      one("ResidualThatIsReadAgain", 3, " + add",
          [](auto& b, Value x) {
            const Value y = conv(b, "y", x, square(20)), z = conv_relu(b, "z", x, square(24, 1));
            const Value sum = b.add("sum", {y, conv(b, "first", z, square(20))});
            return b.add("last", {y, conv(b, "second", sum, square(20, 1))});
          }),
      one("ResidualIsTheImage", 20, " + add + relu",
          [](auto& b, Value x) {
            const Value y = conv_relu(b, "first", x, square(24));
            return b.activation("relu", b.add("add", {x, conv(b, "second", y, square(20, 1))}));
          }),
      one("ResidualOfThree", 3, "sum int8",
          [](auto& b, Value x) {
            x = conv_relu(b, "first", x, square(20));
            return b.activation("relu", b.add("add", {x, conv(b, "a", x, square(20)), conv(b, "b", x, square(20))}));
          }),
      one("SumOfFour", 3, "sum int8 + relu", [](auto& b, Value x) { return sum_of(b, x, 4); }),
      // More than the kernel of bytes takes.
      one("SumOfFive", 3, "sum + relu", [](auto& b, Value x) { return sum_of(b, x, 5); }),
      one("SumWithActivation", 3, "sum int8 + relu",
          [](auto& b, Value x) {
            const Value y = conv_relu(b, "a", x, square(20)), z = conv_relu(b, "b", x, square(20, 1));
            return b.activation("relu", b.add("add", {y, z}));
          }),
      one("Activation", 20, "activation int8",
          [](auto& b, Value x) {
            return b.activation("a", b.average_pool("p", x, {.kernel = 2, .stride = 2}), Function::kSilu);
          }),
      one("MaxPool", 3, "max pool int8",
          [](auto& b, Value x) {
            x = b.max_pool("pool", conv_relu(b, "a", x, square(20)),
                           {.kernel = 3, .stride = 2, .padding = Padding::all(1)});
            return conv(b, "b", x, square(16));
          }),
      one("AveragePool", 3, "average pool int8",
          [](auto& b, Value x) {
            x = b.average_pool("pool", conv_relu(b, "a", x, square(20)),
                               {.kernel = 3, .stride = 2, .padding = Padding::all(1), .ceil_mode = true});
            return conv(b, "b", x, square(16));
          }),
      one("MaxPoolSame", 3, "max pool int8",
          [](auto& b, Value x) {
            x = b.max_pool("pool", conv_relu(b, "a", x, square(20)),
                           {.kernel = {3, 2}, .stride = {2, 3}, .padding = Padding::same()});
            return conv(b, "b", x, square(16));
          }),
      // The padding depends on the size of the pool's input, not the image's.
      one("PoolsSameOfSmallMaps", 3, "max pool int8",
          [](auto& b, Value x) {
            const Value y = conv_relu(b, "a", x, square(20, 3, 2));
            const Pool pool{.kernel = {3, 2}, .stride = {2, 3}, .padding = Padding::same()};
            return conv(b, "b", b.concat("concat", {b.max_pool("max", y, pool), b.average_pool("mean", y, pool)}),
                        square(16, 1));
          }),
      one("AveragePoolOblong", 3, "average pool int8",
          [](auto& b, Value x) {
            x = b.average_pool("pool", conv_relu(b, "a", x, square(20)),
                               {.kernel = {3, 2},
                                .stride = {2, 3},
                                .padding = {Padding::Kind::kExplicit, 1, 1, 0, 1},
                                .ceil_mode = true,
                                .count_padding = true});
            return conv(b, "b", x, square(16));
          }),
      one("GlobalAverageAndLinear", 3, "linear int8",
          [](auto& b, Value x) {
            return b.linear("fc", b.global_average_pool("pool", conv_relu(b, "a", x, square(37))),
                            {.out_features = 45});
          }),
      one("AdaptiveAverage", 3, "global average pool int8",
          [](auto& b, Value x) {
            x = b.adaptive_average_pool("pool", conv_relu(b, "a", x, square(32)), 1);
            return conv(b, "b", x, square(40, 1));
          }),
      one("OddAdaptiveAverage", 3, "global average pool int8",
          [](auto& b, Value x) {
            x = b.adaptive_average_pool("pool", conv_relu(b, "a", x, square(21)), 1);
            return conv(b, "b", x, square(40, 1));
          }),
      one("Flatten", 3, "flatten int8",
          [](auto& b, Value x) {
            x = b.flatten("flat", conv_relu(b, "a", x, square(5)));
            x = b.activation("relu", b.linear("fc", x, {.out_features = 45}));
            return b.linear("fc2", b.dropout("drop", x), {.out_features = 30, .bias = false});
          }),
      one("FlattenOfAVector", 3, "linear int8",
          [](auto& b, Value x) {
            const Value mean = b.global_average_pool("pool", conv_relu(b, "a", x, square(37)));
            return b.linear("fc", b.flatten("flat", mean), {.out_features = 45});
          }),
      one("Concat", 3, "concat int8",
          [](auto& b, Value x) {
            const Value y = conv_relu(b, "a", x, square(20)), z = conv(b, "b", y, square(7, 1));
            return conv(b, "c", b.concat("concat", {y, z, y}), square(16, 1));
          }),
      one("ChannelPad", 3, "channel pad int8",
          [](auto& b, Value x) {
            x = b.channel_pad("pad", conv(b, "a", x, square(12)), {.before = 3, .after = 5});
            return conv(b, "c", x, square(16, 1));
          }),
      one("ChannelSlice", 3, "channel slice int8",
          [](auto& b, Value x) {
            x = b.channel_slice("slice", conv(b, "a", x, square(40)), {.begin = 11, .count = 20});
            return conv(b, "c", x, square(16, 1));
          }),
      one("ChannelShuffle", 3, "channel shuffle int8",
          [](auto& b, Value x) {
            return conv(b, "c", b.channel_shuffle("shuffle", conv(b, "a", x, square(40)), 4), in_groups(20, 2, 1));
          }),
      one("SqueezeAndExcitation", 3, "scale channels int8", excited),
      one("Sequence", 3, "linear int8",
          [](auto& b, Value x) {
            x = b.class_token("token",
                              conv(b, "patches", x, {.out_channels = 32, .kernel = 3, .stride = 3, .bias = true}), {});
            Value y = b.layer_norm("norm", x, {});
            y = b.attention("attention",
                            conv(b, "qkv", y, {.out_channels = 96, .bias = true, .form = Convolution::Form::kLinear}),
                            {.heads = 2});
            x = b.add("add",
                      {x, conv(b, "out", y, {.out_channels = 32, .bias = true, .form = Convolution::Form::kLinear})});
            return b.linear("fc", b.flatten("flat", b.layer_norm("norm2", x, {})), {.out_features = 33});
          }),
  };
}

class QuantizedUnits : public ::testing::TestWithParam<Case> {
 protected:
  QuantizedUnits() {
    const Case& c = GetParam();
    GraphBuilder b({.image = {c.channels, 11, 10}, .name = c.name});
    model_ = std::make_unique<Model>(b.build(c.build(b, b.input())));
  }
  std::unique_ptr<Model> model_;
};

TEST_P(QuantizedUnits, ComputeWhatTheyAreDefinedToBe) {
  const at::Tensor x = model_->input(3);
  const auto cpu = model_->make("cpu"), reference = model_->make("reference");
  expect_near(*model_, cpu->forward(x, {}), reference->forward(x, {}), 2, 0.03);
  EXPECT_THAT(kernels_of(*cpu, x), Contains(HasSubstr(GetParam().kernel)));
}

TEST_P(QuantizedUnits, DoNotDependOnTheBatchNorOnThreads) {
  const at::Tensor x = model_->input(5);
  const auto cpu = model_->make("cpu");
  const at::Tensor all = cpu->forward(x, {});
  for (int64_t batch = 1; batch < 5; ++batch) {
    EXPECT_TRUE(at::equal(cpu->forward(x.slice(0, 0, batch), {}), all.slice(0, 0, batch))) << batch;
  }
  const int threads = omp_get_max_threads();
  for (int count : {1, 3}) {
    omp_set_num_threads(count);
    EXPECT_TRUE(at::equal(model_->make("cpu")->forward(x, {}), all)) << count << " threads";
  }
  omp_set_num_threads(threads);
}

TEST_P(QuantizedUnits, ComputeFloatPartsInBfloat16) {
  const at::Tensor x = model_->input(2);
  const at::Tensor expected = model_->make("reference")->forward(x, {});
  const at::Tensor actual = model_->make("cpu", at::kBFloat16)->forward(x, {});
  const double error = ((actual - expected).norm() / expected.norm()).item<double>();
  EXPECT_LE(error, 0.03);
}

// Each kind of unit without scales, and each with neighbours that have none.
TEST_P(QuantizedUnits, ComputeWithAnyLayerInFloat) {
  const Graph& graph = model_->graph;
  for (const Node& node : graph.nodes) {
    const bool multiplies = std::holds_alternative<Convolution>(node.op) || std::holds_alternative<Linear>(node.op);
    if (!multiplies || node.id == graph.output()) continue;
    SCOPED_TRACE(node.name);
    Model model(graph, {node.name});
    const at::Tensor x = model.input(3);
    expect_near(model, model.make("cpu")->forward(x, {}), model.make("reference")->forward(x, {}), 2, 0.03);
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedUnits, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

Graph small_network() {
  GraphBuilder b({.image = {3, 11, 10}, .name = "small"});
  Value x = conv_relu(b, "a", b.input(), square(20));
  x = b.activation("relu", b.add("add", {x, conv(b, "b", x, square(20))}));
  return b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 30}));
}

// Of the four samples the third is NaN, and the others are numbers.
void expect_third_is_nan(const at::Tensor& logits) {
  ASSERT_EQ(logits.size(0), 4);
  EXPECT_TRUE(logits.select(0, 2).isnan().all().item<bool>());
  for (const int64_t n : {0, 1, 3}) EXPECT_TRUE(logits.select(0, n).isfinite().all().item<bool>()) << n;
}

// Returns into how many pieces the batch is divided: each has its images quantized.
int64_t pieces_of(Executor& executor, const at::Tensor& images) {
  const std::vector<std::string> kernels = kernels_of(executor, images);
  return std::count(kernels.begin(), kernels.end(), "quantize");
}

TEST(Quantized, KeepsLayersInFloatThatHaveNoScales) {
  for (const std::set<std::string>& in_float :
       std::vector<std::set<std::string>>{{"a"}, {"b"}, {"fc"}, {"a", "b"}, {"b", "fc"}}) {
    Model model(small_network(), in_float);
    const at::Tensor x = model.input(3);
    const auto cpu = model.make("cpu");
    expect_near(model, cpu->forward(x, {}), model.make("reference")->forward(x, {}), 1, 0.02);
  }
}

// Each value that is rounded has its definition, wherever it lies: inside of a unit, and where a float layer reads it.
TEST(Quantized, RoundsWhereverThereIsAScale) {
  Model model(small_network(), {"b"});
  model.scales->activations["b"] = {0.05F, 100};
  model.scales->activations["fc"] = {0.01F, 128};
  const at::Tensor x = model.input(3);
  expect_near(model, model.make("cpu")->forward(x, {}), model.make("reference")->forward(x, {}), 3, 0.1);
}

TEST(Quantized, MakesNanOfSamplesThatAreNotFinite) {
  Model model(small_network());
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    at::Tensor x = model.input(4).clone();
    const at::Tensor clean = model.make("cpu")->forward(x, {});
    x.select(0, 2).select(0, 1).select(0, 5).select(0, 9).fill_(bad);
    for (const char* executor : {"cpu", "reference"}) {
      const auto made = model.make(executor);
      const at::Tensor logits = made->forward(x, {});
      SCOPED_TRACE(std::string(executor) + " " + std::to_string(bad));
      expect_third_is_nan(logits);
      EXPECT_TRUE(made->forward(model.input(4), {}).isfinite().all().item<bool>()) << "the next batch";
      if (std::string(executor) == "cpu") {
        EXPECT_TRUE(at::equal(logits.select(0, 3), clean.select(0, 3)));
      }
    }
  }
}

// Infinity that only a float layer makes, and that only a unit of bytes adds: the samples are noted all the same.
TEST(Quantized, MakesNanOfSamplesWhoseFloatResidualIsNotFinite) {
  GraphBuilder b({.image = {3, 11, 10}, .name = "float residual"});
  const Value a = conv_relu(b, "a", b.input(), square(20)), side = conv(b, "side", b.input(), square(20));
  const Value x = b.activation("relu", b.add("add", {conv(b, "b", a, square(20)), side}));
  Model model(b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 10})), {"side"});
  model.scales->activations.erase("side");
  ASSERT_TRUE(model.scales->activations.contains("relu"));
  // A sum of 27 of the largest numbers that the image has in bytes overflows, and that of an image of noise does not.
  const ActivationScale input = model.scales->activations.at("input");
  const double largest = 27.0 * input.scale * (255 - input.zero_point);
  model.set.value(*model.set.find("side.weight")).fill_(1.3 * std::numeric_limits<float>::max() / largest);
  model.set.values_changed();
  at::Tensor images = model.input(4).clone();
  images.select(0, 2).fill_(100);  // finite, and beyond the scale
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    // Winograd's transforms would overflow where sums do not.
    const auto cpu = model.make("cpu", dtype, {.convolutions = ConvolutionPolicy::kDirect});
    EXPECT_THAT(kernels_of(*cpu, images),
                ::testing::Contains(::testing::AllOf(HasSubstr("int8"), HasSubstr("+ add + relu"))));
    SCOPED_TRACE(at::toString(dtype));
    expect_third_is_nan(cpu->forward(images, {}));
  }
}

// A gate that is infinite for one sample, and finite for the others: bytes alone would not show it.
TEST(Quantized, MakesNanOfSamplesWhoseFactorsAreNotFinite) {
  GraphBuilder b({.image = {3, 11, 10}, .name = "gate"});
  const Value a = conv_relu(b, "a", b.input(), square(20));
  const Value gate = b.linear("gate", b.global_average_pool("pool", a), {.out_features = 20});
  const Value x = conv(b, "last", b.multiply("multiply", a, gate), square(17, 1));
  Model model(b.build(b.linear("fc", b.global_average_pool("mean", x), {.out_features = 10})), {"gate"});
  for (const char* in_float : {"gate", "pool"}) model.scales->activations.erase(in_float);
  ASSERT_TRUE(model.scales->activations.contains("multiply"));
  model.set.value(*model.set.find("a.weight")).abs_();
  model.set.value(*model.set.find("a.bias")).zero_();
  model.set.values_changed();
  at::Tensor images = model.input(4).clone();
  images.select(0, 2).fill_(100);  // beyond the scale: all sums are the largest that bytes hold
  // The sum of a sample's 20 means, by a gate whose weights are 1.
  model.set.value(*model.set.find("gate.bias")).zero_();
  model.set.value(*model.set.find("gate.weight")).fill_(1);
  model.set.values_changed();
  struct Sums : ValueObserver {
    void made(const NodeRun& run, std::span<const at::Tensor> values) override {
      if (run.kernel == "linear" && !sums.defined()) sums = values.front().clone();
    }
    at::Tensor sums;
  } observer;
  const auto first = model.make("cpu");
  first->set_observer(&observer);
  static_cast<void>(first->forward(images, {}));
  ASSERT_EQ(observer.sums.numel(), 4 * 20);
  const at::Tensor sums = observer.sums.view({4, 20}).select(1, 0);
  const auto largest = sums[2].item<double>();
  for (const int64_t n : {0, 1, 3}) ASSERT_LT(sums[n].item<double>(), 0.7 * largest) << n;
  model.set.value(*model.set.find("gate.weight")).fill_(1.25 * std::numeric_limits<float>::max() / largest);
  model.set.values_changed();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(at::toString(dtype));
    expect_third_is_nan(model.make("cpu", dtype)->forward(images, {}));
  }
}

// Nothing is left of the shift that was folded before into a convolution without a bias.
TEST(Quantized, FoldsNormsAnewWhereValuesChange) {
  GraphBuilder b({.image = {3, 11, 10}, .name = "norm"});
  const Convolution op{.out_channels = 20, .kernel = 3, .padding = Padding::all(1)};
  const Value x = b.activation("relu", b.batch_norm("norm", b.convolution("a", b.input(), op)));
  Model model(b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 30})));
  const at::Tensor images = model.input(2);
  const auto cpu = model.make("cpu");
  const at::Tensor before = cpu->forward(images, {});
  model.set.value(*model.set.find("norm.bias")).add_(0.5);
  model.set.values_changed();
  const at::Tensor after = cpu->forward(images, {});
  EXPECT_FALSE(at::equal(after, before));
  EXPECT_TRUE(at::equal(after, model.make("cpu")->forward(images, {})));
}

TEST(Quantized, FollowsWeightsThatChange) {
  Model model(small_network());
  const at::Tensor x = model.input(2);
  const auto cpu = model.make("cpu");
  const at::Tensor before = cpu->forward(x, {});
  model.set.value(*model.set.find("b.weight")).mul_(-0.5);
  model.set.value(*model.set.find("fc.bias")).add_(0.1);
  model.set.values_changed();
  const at::Tensor after = cpu->forward(x, {});
  EXPECT_FALSE(at::equal(before, after));
  expect_near(model, after, model.make("reference")->forward(x, {}), 1, 0.05);
}

TEST(Quantized, RefusesWeightsThatDoNotFit) {
  for (const char* executor : {"cpu", "reference"}) {
    Model model(small_network());
    const at::Tensor x = model.input(1);
    model.set.value(*model.set.find("b.weight")).select(0, 13).mul_(1.2);
    model.set.values_changed();
    const core::Error error = core::thrown_by([&] { static_cast<void>(model.make(executor)->forward(x, {})); });
    EXPECT_EQ(error.code(), core::ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("b, output channel 13"));
    model.set.value(*model.set.find("b.weight")).select(0, 13).fill_(std::numeric_limits<float>::quiet_NaN());
    model.set.values_changed();
    EXPECT_THAT(core::thrown_by([&] { static_cast<void>(model.make(executor)->forward(x, {})); }).what(),
                HasSubstr("nan"));
  }
}

TEST(Quantized, RefusesBiasesThatAreNotFinite) {
  for (const char* executor : {"cpu", "reference"}) {
    Model model(small_network());
    model.set.value(*model.set.find("b.bias")).select(0, 3).fill_(std::numeric_limits<float>::infinity());
    model.set.values_changed();
    EXPECT_THAT(core::thrown_by([&] { static_cast<void>(model.make(executor)->forward(model.input(1), {})); }).what(),
                HasSubstr("b, output channel 3"));
  }
}

TEST(Quantized, TakesLessMemory) {
  const core::ScopedIntraOpThreads one(1);  // the parts of further threads begin at whole MiB
  Model model(small_network());
  const auto floats =
      make_executor("cpu", model.graph, {.mode = Mode::kInference, .frozen = true, .parameters = &model.set});
  const ExecutorMemory in_float = *floats->prepare(16), in_8_bits = *model.make("cpu")->prepare(16);
  EXPECT_GT(in_8_bits.packed_weights, 0);
  if (!cpu::has_vnni()) {  // Winograd's algorithm: four weights of 16 bits for one, and its chunks of less than 1 MiB
    EXPECT_LT(in_8_bits.packed_weights, 3 * in_float.packed_weights);
    EXPECT_LT(in_8_bits.activations, in_float.activations * 2 / 3 + (1 << 20));
    return;
  }
  EXPECT_LT(in_8_bits.activations, in_float.activations * 2 / 3);  // with the scratch memory of kernels
  EXPECT_LT(in_8_bits.packed_weights, in_float.packed_weights);
}

// A batch whose maps would not stay in the cache is computed in pieces: with the same bits, sample by sample.
TEST(Quantized, ComputesLargeBatchesInPieces) {
  GraphBuilder b({.image = {3, 96, 96}, .name = "large"});
  const Value x = conv_relu(b, "b", conv_relu(b, "a", b.input(), square(128)), square(16, 1));
  Model model(b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 10})), {}, 2);
  const auto cpu = model.make("cpu");
  const at::Tensor images = model.input(13);
  images.select(0, 8).select(0, 1).select(0, 5).select(0, 9).fill_(std::numeric_limits<float>::quiet_NaN());
  const at::Tensor all = cpu->forward(images, {});
  EXPECT_LT(cpu->prepare(13)->activations, 2 * (int64_t{12} << 20));  // pieces of two sizes
  ASSERT_EQ(all.sizes(), at::IntArrayRef({13, 10}));
  for (int64_t n = 0; n < 13; ++n) {
    const at::Tensor alone = cpu->forward(images.slice(0, n, n + 1), {});
    EXPECT_TRUE(n == 8 ? all[n].isnan().all().item<bool>() : at::equal(all[n], alone[0])) << n;
  }
}

// A sample takes more than 2.5 MiB, so that a piece has at most four. More pieces of one size are preferred to fewer of
// two sizes, as long as they are not twice as many.
TEST(Quantized, DividesBatchesEvenlyWherePossible) {
  GraphBuilder b({.image = {3, 128, 80}, .name = "pieces"});
  const Value x = conv_relu(b, "a", b.input(), square(256, 1));
  Model model(b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 3})), {}, 1);
  const auto cpu = model.make("cpu");
  const std::vector<std::pair<int64_t, int64_t>> divisions = {{4, 1}, {5, 2}, {8, 2}, {9, 3}, {10, 5}, {14, 7}};
  for (const auto& [batch, pieces] : divisions) EXPECT_EQ(pieces_of(*cpu, model.input(batch)), pieces) << batch;
  // Two sizes of pieces have a plan each.
  const ExecutorMemory of_five = *cpu->prepare(5), of_eight = *cpu->prepare(8);
  const ExecutorMemory of_two = *cpu->prepare(2), of_three = *cpu->prepare(3), of_four = *cpu->prepare(4);
  EXPECT_EQ(of_five.activations, of_two.activations + of_three.activations);
  EXPECT_EQ(of_five.packed_weights, of_two.packed_weights + of_three.packed_weights);
  EXPECT_EQ(of_eight.activations, of_four.activations);
  EXPECT_EQ(of_eight.packed_weights, of_four.packed_weights);
}

// A sample takes about 1.3 MiB, of 12 that a piece may take: 8 or 9 samples are a piece.
TEST(Quantized, DividesBatchesByTheMemoryOfASample) {
  GraphBuilder b({.image = {3, 96, 96}, .name = "pieces"});
  const Value x = conv_relu(b, "b", conv_relu(b, "a", b.input(), square(128, 1)), square(16, 1));
  Model model(b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 3})), {}, 1);
  const auto cpu = model.make("cpu");
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);  // kernels have memory for each thread
  for (const auto& [batch, pieces] : {std::pair(6, 1), std::pair(16, 2)}) {
    EXPECT_EQ(pieces_of(*cpu, model.input(batch)), pieces) << batch;
  }
  omp_set_num_threads(threads);
}

// Dense convolutions read images of up to four channels in fours, all others read maps in blocks.
TEST(Quantized, ReadsImagesOfFewChannelsInFours) {
  struct Listener : ValueObserver {
    void made(const NodeRun& run, std::span<const at::Tensor> values) override {
      if (run.kernel == "quantize") elements = values.front().numel();
    }
    int64_t elements = 0;
  };
  const auto channels_read = [](int64_t channels, int64_t groups) {
    GraphBuilder b({.image = {channels, 11, 10}, .name = "image"});
    Model model(b.build(conv(b, "c", b.input(), in_groups(4 * channels, groups))));
    Listener observer;
    const auto cpu = model.make("cpu");
    cpu->set_observer(&observer);
    static_cast<void>(cpu->forward(model.input(2), {}));
    return observer.elements / (2 * 11 * 10);
  };
  for (const int64_t channels : {1, 3, 4}) EXPECT_EQ(channels_read(channels, 1), 4) << channels;
  EXPECT_EQ(channels_read(5, 1), cpu::channel_block());
  EXPECT_EQ(channels_read(3, 3), cpu::channel_block()) << "groups";
}

// A table gives pad lanes the sigmoid of zero. Observers get zeros there, and what the network computes elsewhere.
TEST(Quantized, ShowsObserversZerosInPadLanes) {
  GraphBuilder b({.image = {20, 11, 10}, .name = "pads"});
  const Value pool = b.average_pool("pool", b.input(), {.kernel = 2, .stride = 2});
  Model model(b.build(b.activation("a", pool, Function::kSigmoid)));
  struct Map : ValueObserver {
    void made(const NodeRun& run, std::span<const at::Tensor> values) override {
      if (run.kernel == "activation int8") map = values.front().clone();
    }
    at::Tensor map;
  } observer;
  const auto executor = model.make("cpu");
  executor->set_observer(&observer);
  const at::Tensor plain = executor->forward(model.input(2), {}).contiguous();
  ASSERT_TRUE(observer.map.defined());
  const int64_t block = cpu::channel_block(), blocks = (20 + block - 1) / block, pixels = 25;
  ASSERT_EQ(observer.map.numel(), 2 * blocks * pixels * block);
  int wrong = 0;
  for (int64_t i = 0; i < observer.map.numel(); ++i) {
    const int64_t pixel = i / block % pixels, plane = i / block / pixels;
    const int64_t n = plane / blocks, c = plane % blocks * block + i % block;
    const float expected = c < 20 ? plain.const_data_ptr<float>()[(n * 20 + c) * pixels + pixel] : 0;
    wrong += std::abs(observer.map.const_data_ptr<float>()[i] - expected) > 1e-6F ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(plain.min().item<float>(), 0.1F);
}

// Observers get numbers, not bytes: the least and the largest value of each node are those of the reference.
TEST(Quantized, ShowsObserversNumbers) {
  Model model(small_network());
  const at::Tensor x = model.input(3);
  struct Ranges : ValueObserver {
    void made(const NodeRun& run, std::span<const at::Tensor> values) override {
      ASSERT_TRUE(values.front().is_floating_point());
      if (run.nodes.empty()) return;
      const at::Tensor value = values.front().to(at::kDouble);
      found.emplace_back(run.nodes.back(), value.sum().item<double>(), value.abs().sum().item<double>());
    }
    std::vector<std::tuple<int, double, double>> found;
  } cpu, reference;
  for (auto [name, observer] : {std::pair{"cpu", &cpu}, std::pair{"reference", &reference}}) {
    const auto executor = model.make(name);
    executor->set_observer(observer);
    static_cast<void>(executor->forward(x, {}));
  }
  ASSERT_EQ(cpu.found.size(), 4U);  // units: convolution + relu, convolution + add + relu, pool, linear
  for (const auto& [node, sum, magnitude] : cpu.found) {
    for (const auto& [other, expected, expected_magnitude] : reference.found) {
      if (other == node) {
        EXPECT_NEAR(sum, expected, 0.01 * expected_magnitude) << node;
      }
    }
  }
}

// Errors name the node and say what is wrong with its scale.
TEST(Quantized, ChecksItsScales) {
  const auto message_of = [](const std::function<void(Quantization&)>& change, core::ErrorCode code) {
    Model model(small_network());
    change(*model.scales);
    std::string text;
    for (const char* executor : {"cpu", "reference"}) {
      const core::Error error = core::thrown_by([&] { static_cast<void>(model.make(executor)); });
      EXPECT_EQ(error.code(), code);
      text = error.what();
    }
    return text;
  };
  constexpr auto kInvalid = core::ErrorCode::kInvalidArgument;
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
  for (const float bad : {0.0F, -1.0F, nan, infinite, 1e-45F}) {
    EXPECT_THAT(message_of([&](Quantization& q) { q.activations["add"] = {bad, 3}; }, kInvalid), HasSubstr("add"));
    EXPECT_THAT(message_of([&](Quantization& q) { q.weights["b"][7] = bad; }, kInvalid), HasSubstr("channel 7"));
  }
  EXPECT_THAT(message_of(
                  [](Quantization& q) {
                    q.activations["relUu"] = {1, 3};
                  },
                  core::ErrorCode::kNotFound),
              HasSubstr("relu"));
  EXPECT_THAT(message_of([](Quantization& q) { q.weights["conv9"] = {1}; }, core::ErrorCode::kNotFound),
              HasSubstr("conv9"));
  EXPECT_THAT(message_of([](Quantization& q) { q.weights["relu"] = {1}; }, kInvalid), HasSubstr("relu"));
  EXPECT_THAT(message_of([](Quantization& q) { q.weights["b"].pop_back(); }, kInvalid), HasSubstr("expected 20"));
  EXPECT_THAT(message_of([](Quantization& q) { q.activations.erase("input"); }, kInvalid), HasSubstr("'input'"));
}

TEST(Quantized, KeepsTheScaleOfWhatIsOnlyMoved) {
  GraphBuilder b({.image = {3, 11, 10}, .name = "pooled"});
  const Value x = b.max_pool("pool", conv_relu(b, "a", b.input(), square(20)), {.kernel = 2, .stride = 2});
  Model model(b.build(conv(b, "b", x, square(20))));
  model.scales->activations["pool"].zero_point += 1;
  const core::Error error = core::thrown_by([&] { static_cast<void>(model.make("cpu")); });
  EXPECT_EQ(error.code(), core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.what(), HasSubstr("pool"));
  EXPECT_THAT(error.what(), HasSubstr("'a.relu'"));
}

TEST(Quantized, NeedsConstantVariablesAndTheCpu) {
  Model model(small_network());
  BuildContext context{.mode = Mode::kInference, .parameters = &model.set, .quantization = model.scales};
  EXPECT_EQ(core::thrown_by([&] { static_cast<void>(make_executor("cpu", model.graph, context)); }).code(),
            core::ErrorCode::kInvalidArgument);
  context.frozen = true;
  context.device = at::Device("meta");
  EXPECT_EQ(core::thrown_by([&] { static_cast<void>(make_executor("reference", model.graph, context)); }).code(),
            core::ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace trainyard::nn::quantized_test
