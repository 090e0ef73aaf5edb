// What plans do with kernels and memory: they take the numbers of the kernels that were chosen, read no memory that no
// step has written, and have room for vectors that are as large as maps.

#include "trainyard/nn/cpu/plan/plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones_like.h>
#include <gtest/gtest.h>

#include "trainyard/nn/cpu/convolution/choice/convolution_choice.h"
#include "trainyard/nn/cpu/convolution/convolution_shape.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/nn/testing/convolution.h"
#include "trainyard/nn/testing/drawn_values.h"
#include "trainyard/nn/testing/replica.h"

namespace trainyard::nn::cpu::plan_test {
namespace {

using Value = GraphBuilder::Value;
using Build = std::function<Value(GraphBuilder&, Value)>;

constexpr int64_t kBatch = 3, kChannels = 20, kSide = 2;

// A plan of a training step, which computes the gradient of the images, too, or of an inference.
struct Planned {
  Planned(const Graph& graph, at::ScalarType dtype, ConvolutionPolicy policy, int64_t batch,
          Mode mode = Mode::kTraining)
      : sink(set) {
    const bool gradients = mode == Mode::kTraining;
    executor = make_executor(
        "cpu", graph,
        {.dtype = dtype, .mode = mode, .kernels = {.convolutions = policy}, .parameters = &set, .gradients = &sink});
    set.allocate();
    fill_parameters(set);
    for (const Node& node : executor->graph().nodes) {
      layers.push_back(std::make_unique<BoundLayer>(node, executor->context()));
    }
    plan = std::make_unique<Plan>(executor->graph(), executor->context(), layers,
                                  PlanOptions{.batch = batch, .gradients = gradients, .input_gradients = {gradients}});
  }

  ParameterSet set;
  GradientSink sink;
  std::unique_ptr<Executor> executor;
  Plan::Layers layers;
  std::unique_ptr<Plan> plan;
};

// Returns a map in the layout of a plan's inputs: [N, C, H, W].
at::Tensor plain_of(const TestMap& map) {
  const MapShape& s = map.shape();
  at::Tensor plain = at::empty({s.batch, s.channels, s.height, s.width}, at::kFloat);
  auto* to = plain.mutable_data_ptr<float>();
  map.each([&](int64_t n, int64_t c, int64_t y, int64_t x) { *to++ = static_cast<float>(map.at(n, c, y, x)); });
  return plain;
}
at::Tensor vector_of(const std::vector<float>& values) {
  at::Tensor vector = at::empty({static_cast<int64_t>(values.size())}, at::kFloat);
  std::copy(values.begin(), values.end(), vector.mutable_data_ptr<float>());
  return vector;
}

// Bit for bit, where all numbers are finite: the kernels for what is not finite round otherwise.
void expect_numbers_of_kernels(int64_t kernel, ConvolutionPolicy policy, at::ScalarType dtype) {
  SCOPED_TRACE(::testing::Message() << kernel << " x " << kernel << ", policy " << static_cast<int>(policy) << ", "
                                    << toString(dtype));
  GraphBuilder b({.image = {32, 9, 10}, .name = "conv"});
  const Convolution op{.out_channels = 48, .kernel = kernel, .padding = Padding::all(kernel / 2), .bias = true};
  const Graph graph = b.build(b.flatten("flat", b.convolution("conv", b.input(), op)));
  Planned planned(graph, dtype, policy, kBatch);
  const DataType type = dtype == at::kFloat ? DataType::kFloat : DataType::kBfloat16;
  const Problem p(convolution_shape(graph.node("conv"), {32, 9, 10}, kBatch, type));
  const ParameterId weight = planned.set.find("conv.weight").value(), bias = planned.set.find("conv.bias").value();
  planned.set.value(weight).view({-1}).copy_(vector_of(p.weights));
  planned.set.value(bias).copy_(vector_of(p.bias));
  planned.set.values_changed();
  const auto chosen = [&](ConvolutionDirection direction) {
    return choose_convolution(p.shape, {.direction = direction}, {.convolutions = policy});
  };
  const auto forward = chosen(ConvolutionDirection::kForward), data = chosen(ConvolutionDirection::kBackwardData),
             weights = chosen(ConvolutionDirection::kBackwardWeights);
  ASSERT_TRUE(forward != nullptr && data != nullptr && weights != nullptr);

  cpu::Run run;
  planned.sink.begin(0, 1);
  const std::vector<at::Tensor> outputs = planned.plan->forward(run, {plain_of(p.source)}, {.seed = 3}, nullptr);
  const std::vector<at::Tensor> inputs =
      planned.plan->backward(run, {plain_of(p.output_gradient).view({kBatch, -1})}, nullptr);
  planned.sink.finish();
  const Runner::Gradients gradients = Runner(*weights).backward_weights(p);
  EXPECT_TRUE(at::equal(outputs.at(0), plain_of(Runner(*forward).forward(p)).view({kBatch, -1})));
  EXPECT_TRUE(at::equal(inputs.at(0), plain_of(Runner(*data).backward_data(p))));
  EXPECT_TRUE(at::equal(planned.set.gradient(weight).reshape({-1}), vector_of(gradients.weights)));
  EXPECT_TRUE(at::equal(planned.set.gradient(bias), vector_of(gradients.bias)));
}

// The same of the forward of an inference, whose kernel has the ReLU.
void expect_outputs_of_kernel(ConvolutionPolicy policy, at::ScalarType dtype, bool frozen, bool relu) {
  GraphBuilder b({.image = {32, 9, 10}, .name = "conv"});
  const Convolution op{.out_channels = 48, .kernel = 3, .padding = Padding::all(1), .bias = true};
  const Value conv = b.convolution("conv", b.input(), op);
  const Graph graph = b.build(b.flatten("flat", relu ? b.activation("relu", conv) : conv));
  const DataType type = dtype == at::kFloat ? DataType::kFloat : DataType::kBfloat16;
  const Problem p(convolution_shape(graph.node("conv"), {32, 9, 10}, kBatch, type));
  ParameterSet set;
  const auto executor = make_executor("cpu", graph,
                                      {.dtype = dtype,
                                       .mode = Mode::kInference,
                                       .frozen = frozen,
                                       .kernels = {.convolutions = policy},
                                       .parameters = &set});
  set.allocate();
  set.value(set.find("conv.weight").value()).view({-1}).copy_(vector_of(p.weights));
  set.value(set.find("conv.bias").value()).copy_(vector_of(p.bias));
  set.values_changed();
  const UnitActivation activation = relu ? UnitActivation::kRelu : UnitActivation::kNone;
  const auto kernel =
      choose_convolution(p.shape, {.inference = true, .activation = activation}, {.convolutions = policy});
  ASSERT_NE(kernel, nullptr);
  const at::Tensor expected = plain_of(Runner(*kernel).forward(p)).view({kBatch, -1});
  EXPECT_TRUE(at::equal(executor->forward(plain_of(p.source), {}), expected))
      << "policy " << static_cast<int>(policy) << ", " << toString(dtype) << (frozen ? ", frozen" : "")
      << (relu ? ", relu" : "");
}

TEST(Plan, TakesTheOutputsOfTheKernelThatIsChosenForInference) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    if (dtype == at::kBFloat16 && isa() == Isa::kAvx2) continue;  // maps are float there
    for (const ConvolutionPolicy policy : {ConvolutionPolicy::kDirect, ConvolutionPolicy::kWinograd}) {
      for (const bool frozen : {false, true}) {
        for (const bool relu : {false, true}) expect_outputs_of_kernel(policy, dtype, frozen, relu);
      }
    }
  }
}

TEST(Plan, TakesTheNumbersOfTheKernelsThatAreChosen) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    if (dtype == at::kBFloat16 && isa() == Isa::kAvx2) continue;  // maps are float there
    expect_numbers_of_kernels(3, ConvolutionPolicy::kDirect, dtype);
    expect_numbers_of_kernels(3, ConvolutionPolicy::kWinograd, dtype);
    expect_numbers_of_kernels(1, ConvolutionPolicy::kByShape, dtype);
  }
}

// Steps of convolutional networks, on so few pixels that vectors of channels are as large as maps.
Value convolutions(GraphBuilder& b, Value x) {
  const auto conv = [&](const std::string& name, Value from, int64_t channels, int64_t groups) {
    return b.convolution(name, from,
                         {.out_channels = channels, .kernel = 3, .padding = Padding::all(1), .groups = groups});
  };
  x = b.activation("relu1", b.batch_norm("norm1", conv("conv1", x, 200, 1)));
  x = conv("depthwise", x, 200, 200);
  x = b.activation("relu2", b.add("add1", {b.batch_norm("norm2", x), x}));
  x = b.add("add2", {b.layer_scale("scale", x, {.init = Initializer::constant(0.5)}), x});
  x = b.dropout("drop", x, 0.25);
  const Value gate = b.linear("gate", b.global_average_pool("mean", x), {.out_features = 200});
  x = b.multiply("multiply", x, b.activation("sigmoid", gate, Activation::Function::kSigmoid));
  x = b.concat("concat", {b.channel_slice("slice", x, {.begin = 3, .count = 90}),
                          b.channel_pad("pad", x, {.before = 3, .after = 2})});
  x = b.local_response_norm("lrn", b.channel_shuffle("shuffle", x, 5), {.radius = 2});
  const Pool pool{.kernel = 2, .stride = 2};
  x = b.concat("pools", {b.max_pool("max", x, pool), b.average_pool("average", x, pool)});
  return b.global_average_pool("last", x);
}

Value per_pixel(GraphBuilder& b, const std::string& name, Value x, int64_t channels) {
  return b.convolution(name, x, {.out_channels = channels, .bias = true, .form = Convolution::Form::kLinear});
}

// Steps of transformers.
Value sequence(GraphBuilder& b, Value x) {
  x = b.position_embedding("position", b.class_token("token", per_pixel(b, "patches", x, 32), {}), {});
  const Value y = b.attention("attention", per_pixel(b, "qkv", b.layer_norm("norm1", x, {}), 96), {.heads = 2});
  const Value scaled = b.layer_scale("scale", per_pixel(b, "out", y, 32), {.init = Initializer::constant(0.5)});
  return b.flatten("flat", b.layer_norm("norm2", b.add("add", {x, scaled}), {}));
}
Value windows(GraphBuilder& b, Value x) {
  x = b.attention("attention", per_pixel(b, "qkv", x, 96), {.heads = 2, .window = 2});
  return b.global_average_pool("pool", x);
}

std::vector<std::pair<std::string, Graph>> networks() {
  std::vector<std::pair<std::string, Graph>> graphs;
  for (const auto& [name, build] : std::vector<std::pair<std::string, Build>>{
           {"convolutions", convolutions}, {"sequence", sequence}, {"windows", windows}}) {
    GraphBuilder b({.image = {kChannels, kSide, kSide}, .name = name});
    graphs.emplace_back(name, b.build(b.linear("fc", build(b, b.input()), {.out_features = 5})));
  }
  return graphs;
}

// Whatever the memory holds before a pass, its numbers are the same bits.
TEST(Plan, ReadsNoMemoryThatNoStepHasWritten) {
  const at::Tensor images = normal_images({kBatch, kChannels, kSide, kSide});
  for (const auto& [name, graph] : networks()) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      Planned planned(graph, dtype, ConvolutionPolicy::kByShape, kBatch);
      cpu::Run run;
      planned.plan->forward(run, {images}, {.seed = 3}, nullptr);  // allocates the memory
      std::vector<at::Tensor> expected;
      for (const int byte : {0, 0xFF}) {  // floats of 0xFF are NaN
        run.arena.fill_(byte);
        planned.sink.begin(0, 1);
        std::vector<at::Tensor> found = planned.plan->forward(run, {images}, {.seed = 3}, nullptr);
        found.push_back(planned.plan->backward(run, {at::ones_like(found.front())}, nullptr).front());
        planned.sink.finish();
        found.push_back(planned.set.gradients().clone());
        if (expected.empty()) expected = found;
        ASSERT_EQ(found.size(), 3U);
        for (size_t i = 0; i < found.size(); ++i) {
          EXPECT_TRUE(at::equal(found[i], expected[i])) << name << ' ' << toString(dtype) << ' ' << i;
        }
      }
    }
  }
}

// Norms that are frozen normalize by running statistics.
TEST(Plan, HasRoomForVectorsThatAreAsLargeAsMaps) {
  const at::Tensor images = normal_images({kBatch, kChannels, kSide, kSide});
  const at::Tensor labels = at::linspace(0, 4.99, kBatch).to(at::kLong);
  const auto gradients_of = [&](Replica& replica, bool freezes_norms) {
    fill_parameters(replica.set);
    for (const Segment& segment : replica.set.segments()) {
      if (freezes_norms && segment.spec.name.starts_with("norm")) replica.set.set_trainable(segment.id, false);
    }
    replica.sink.begin(0, 1);
    const at::Tensor input = images.to(replica.set.dtype());
    softmax_cross_entropy(replica.executor->forward(input, {.seed = 3}), labels).backward();
    replica.sink.finish();
    return replica.set.gradients().clone();
  };
  for (const auto& [name, graph] : networks()) {
    for (const bool freezes_norms : {false, true}) {
      Replica cpu("cpu", graph, at::kFloat, {.convolutions = ConvolutionPolicy::kByShape});
      Replica exact("reference", graph, at::kDouble);
      EXPECT_LT(distance(gradients_of(cpu, freezes_norms), gradients_of(exact, freezes_norms)), 1e-4)
          << name << ' ' << freezes_norms;
    }
  }
}

// The image is the first node of a graph and the first value of a plan.
TEST(Plan, AddsTheImageItself) {
  const std::vector<std::pair<std::string, Build>> layers = {
      {"norm",
       [](GraphBuilder& b, Value x) {
         return b.activation("relu", b.add("add", {b.batch_norm("norm", x), x}));
       }},
      {"layer scale",
       [](GraphBuilder& b, Value x) {
         return b.add("add", {b.layer_scale("scale", x, {.init = Initializer::constant(0.5)}), x});
       }},
      {"convolution", [](GraphBuilder& b, Value x) {
         const Convolution op{.out_channels = kChannels, .kernel = 3, .padding = Padding::all(1)};
         return b.activation("relu", b.add("add", {b.convolution("conv", x, op), x}));
       }}};
  const at::Tensor images = normal_images({kBatch, kChannels, 5, 4});
  for (const auto& [name, build] : layers) {
    GraphBuilder b({.image = {kChannels, 5, 4}, .name = "image"});
    const Graph graph = b.build(b.flatten("flat", build(b, b.input())));
    for (const Mode mode : {Mode::kTraining, Mode::kInference}) {
      const auto logits = [&](const char* executor_name, at::ScalarType dtype) {
        ParameterSet set({.dtype = dtype});
        const auto executor = make_executor(executor_name, graph, {.dtype = dtype, .mode = mode, .parameters = &set});
        set.allocate();
        fill_parameters(set);
        return executor->forward(images.to(dtype), {.seed = 3}).detach();
      };
      EXPECT_LT(distance(logits("cpu", at::kFloat), logits("reference", at::kDouble)), 1e-5)
          << name << ' ' << static_cast<int>(mode);
    }
  }
}

// The bytes of a plan's memory, for two images of 16 channels of 8 x 8 pixels in float, whose maps are 8 KiB. A step
// reads one map and writes another. A map that its backward reads is a third one, and other numbers lie behind them.
TEST(Plan, HasTheMemoryThatItsStepsName) {
  constexpr int64_t kMap = 8192, kLine = 64;
  struct Case {
    std::string name;
    Build build;
    int64_t inference, training;
  };
  const Pool pool{.kernel = 3, .stride = 1, .padding = Padding::all(1)};
  for (const Case& c : {
           Case{"average pool", [=](GraphBuilder&b, Value x) { return b.average_pool("layer", x, pool); }, 2 * kMap,
                2 * kMap},
           Case{"channel shuffle", [](GraphBuilder&b, Value x) { return b.channel_shuffle("layer", x, 4); }, 2 * kMap,
                2 * kMap},
           Case{"max pool, with a byte for each maximum",
                [=](GraphBuilder&b, Value x) { return b.max_pool("layer", x, pool); }, 2 * kMap, 2 * kMap + kMap / 4},
           Case{"activation",
                [](GraphBuilder&b, Value x) { return b.activation("layer", x, Activation::Function::kSilu); }, 2 * kMap,
                3 * kMap},
           Case{"local response norm", [](GraphBuilder&b, Value x) { return b.local_response_norm("layer", x, {}); },
                2 * kMap, 3 * kMap},
           // Its factors are as large as a map.
           Case{"dropout",
                [](GraphBuilder&b, Value x) { return b.dropout("layer", b.channel_shuffle("before", x, 4), 0.25); },
                2 * kMap, 3 * kMap},
           // Means and deviations of 128 pixels, and the gradients of two vectors.
           Case{"layer norm", [](GraphBuilder&b, Value x) { return b.layer_norm("layer", x, {}); }, 2 * kMap + 2 * 512,
                3 * kMap + 2 * 512 + 2 * kLine},
           // Factors of two samples, and of their channels, and the gradients of the latter and of their sums.
           Case{"layer scale", [](GraphBuilder&b, Value x) { return b.layer_scale("layer", x, {}); },
                2 * kMap + kLine + 128, 3 * kMap + 2 * kLine + 2 * 128},
       }) {
    GraphBuilder b({.image = {16, 8, 8}, .name = "layer"});
    const Graph graph = b.build(b.flatten("flat", c.build(b, b.input())));
    const auto bytes_of = [&](Mode mode) {
      return Planned(graph, at::kFloat, ConvolutionPolicy::kDirect, 2, mode).plan->arena_bytes();
    };
    EXPECT_EQ(bytes_of(Mode::kInference), c.inference) << c.name;
    EXPECT_EQ(bytes_of(Mode::kTraining), c.training) << c.name;
  }
}

// Its input and output, and in the backward its input and both gradients: scratch memory is for products in bfloat16.
TEST(Plan, HasNoOtherMemoryForALinearLayerInFloat) {
  constexpr int64_t kVectors = 8192;  // of two samples
  GraphBuilder b({.image = {16, 8, 8}, .name = "linear"});
  const Graph graph = b.build(b.linear("layer", b.flatten("flat", b.input()), {.out_features = 1024}));
  const auto bytes_of = [&](Mode mode) {
    return Planned(graph, at::kFloat, ConvolutionPolicy::kDirect, 2, mode).plan->arena_bytes();
  };
  EXPECT_EQ(bytes_of(Mode::kInference), 2 * kVectors);
  EXPECT_EQ(bytes_of(Mode::kTraining), 3 * kVectors);
}

// The first step reads the caller's images where they are.
TEST(Plan, HasNoMemoryForItsInputs) {
  GraphBuilder b({.image = {16, 8, 8}, .name = "inputs"});
  const Graph graph = b.build(b.flatten("flat", b.input()));
  const Planned planned(graph, at::kFloat, ConvolutionPolicy::kDirect, 2, Mode::kInference);
  EXPECT_EQ(planned.plan->arena_bytes(), 2 * 16 * 8 * 8 * int64_t{sizeof(float)}) << "the vectors alone";
}

}  // namespace
}  // namespace trainyard::nn::cpu::plan_test
