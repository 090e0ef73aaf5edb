#include "trainyard/nn/graph/graph.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/nn/graph/layer_table.h"

namespace trainyard::nn::graph_test {
namespace {

using Value = GraphBuilder::Value;

Graph tiny() {
  GraphBuilder b({.image = {3, 32, 32}, .name = "tiny"});
  auto x = b.convolution("conv1", b.input(), {.out_channels = 16, .kernel = 3, .padding = Padding::all(1)});
  x = b.activation("relu1", b.batch_norm("bn1", x));
  x = b.linear("fc", b.global_average_pool("pool", x), {.out_features = 10});
  return b.build(x);
}

TEST(Graph, NamesShapesAndCounts) {
  const Graph graph = tiny();
  EXPECT_EQ(graph.output_shape(), Shape{10});
  EXPECT_EQ(graph.node("conv1").shape, (Shape{16, 32, 32}));
  EXPECT_EQ(graph.node("conv1").parameters[0].name, "conv1.weight");
  EXPECT_EQ(graph.node("conv1").parameters[0].shape, (Shape{16, 3, 3, 3}));
  EXPECT_FALSE(graph.node("bn1").parameters[0].decay) << "batch norm is outside weight decay";
  EXPECT_EQ(graph.node("bn1").buffers[1].name, "bn1.running_var");
  EXPECT_EQ(graph.parameter_count(), 432 + 32 + 170);
  EXPECT_EQ(graph.forward_flops(), 2 * (432 * 32 * 32 + 160));
  EXPECT_EQ(core::message_of([&] { graph.node("bn2"); }, core::ErrorCode::kNotFound),
            "unknown node of tiny 'bn2'; did you mean 'bn1'? known: input, conv1, bn1, relu1, pool, fc");
}

TEST(Graph, LayerTable) {
  EXPECT_EQ(layer_table(tiny()),
            "tiny\n"
            "node   kind                 attributes                shape         parameters    flops\n"
            "input  input                                          [3, 32, 32]            0        0\n"
            "conv1  convolution          16 x 3x3, pad 1           [16, 32, 32]         432  884,736\n"
            "bn1    batch_norm           epsilon 1e-05, decay 0.9  [16, 32, 32]          32        0\n"
            "relu1  activation           relu                      [16, 32, 32]           0        0\n"
            "pool   global_average_pool                            [16]                   0        0\n"
            "fc     linear               10, bias                  [10]                 170      320\n"
            "total                                                                      634  885,056\n");
}

TEST(Graph, LayerTableGroupsThousands) {
  GraphBuilder b({.image = {1000}, .name = "wide"});
  EXPECT_EQ(layer_table(b.build(b.linear("fc", b.input(), {.out_features = 1000}))),
            "wide\n"
            "node   kind    attributes  shape   parameters      flops\n"
            "input  input               [1000]           0          0\n"
            "fc     linear  1000, bias  [1000]   1,001,000  2,000,000\n"
            "total                               1,001,000  2,000,000\n");
}

TEST(Graph, DescribesAttributes) {
  GraphBuilder b({.image = {4, 20, 20}, .name = "g"});
  Value x = b.convolution("c", b.input(),
                          {.out_channels = 8,
                           .kernel = {1, 7},
                           .stride = {1, 2},
                           .padding = Padding::symmetric(0, 3),
                           .dilation = 2,
                           .groups = 2,
                           .bias = true});
  x = b.max_pool("p", x, {.kernel = 3, .stride = 2, .padding = Padding::same(), .ceil_mode = true});
  const Graph graph = b.build(b.dropout("d", x, 0.25));
  EXPECT_EQ(graph.node("c").description(), "8 x 1x7 / 1x2, pad 0x3, dilation 2, groups 2, bias");
  EXPECT_EQ(graph.node("p").description(), "3x3 / 2, same, ceil");
  EXPECT_EQ(graph.node("p").kind(), "max_pool");
  EXPECT_EQ(graph.node("d").description(), "drop 0.25");
}

TEST(Graph, DescribesAttributesOfEachKind) {
  GraphBuilder b({.image = {12, 8, 6}, .name = "g"});
  Value x = b.spatial_pad("rows", b.input(), {.top = 1, .bottom = 3, .left = -2, .right = 0});
  x = b.channel_pad("channels", x, {.before = 4, .after = 8});
  x = b.channel_slice("slice", x, {.begin = 5, .count = 12});
  x = b.channel_shuffle("shuffle", x, 3);
  x = b.batch_norm("norm", x, {.epsilon = 0.25, .decay = 0.5, .scale = false, .biased_running_variance = true});
  x = b.local_response_norm("response", x, {.radius = 2, .bias = 1.5, .alpha = 0.25, .beta = 0.75});
  x = b.average_pool("average", x,
                     {.kernel = {3, 2}, .padding = {Padding::Kind::kExplicit, 1, 2, 0, 1}, .count_padding = true});
  x = b.adaptive_average_pool("adaptive", x, {4, 6});
  x = b.attention("attention", x, {.heads = 2, .window = 2, .shift = 1});
  x = b.convolution("linear", x, {.out_channels = 6, .kernel = 1, .form = Convolution::Form::kLinear});
  x = b.attention("some", x, {.heads = 1, .queries = 5});
  x = b.stochastic_depth("depth", b.layer_norm("layer", b.l2_norm("length", x, {.epsilon = 0.5}), {.epsilon = 0.125}),
                         0.375);
  x = b.activation("gate", x, Activation::Function::kHardSigmoid);
  const Graph graph = b.build(b.linear("fc", b.flatten("flat", x), {.out_features = 3, .bias = false}));
  const auto says = [&](const char* name) { return graph.node(name).description(); };
  EXPECT_EQ(says("rows"), "1 + 3 rows, -2 + 0 columns");
  EXPECT_EQ(says("channels"), "4 + 8");
  EXPECT_EQ(says("slice"), "12 from 5");
  EXPECT_EQ(says("shuffle"), "groups 3");
  EXPECT_EQ(says("norm"), "epsilon 0.25, decay 0.5, no scale, biased running variance");
  EXPECT_EQ(says("response"), "radius 2, bias 1.5, alpha 0.25, beta 0.75");
  EXPECT_EQ(says("average"), "3x2, pad 1+2x0+1, padding counted");
  EXPECT_EQ(says("adaptive"), "to 4x6");
  EXPECT_EQ(says("attention"), "2 heads, windows 2x2, shift 1");
  EXPECT_EQ(says("linear"), "6 x 1x1, linear");
  EXPECT_EQ(says("some"), "1 heads, 5 queries");
  EXPECT_EQ(says("length"), "epsilon 0.5");
  EXPECT_EQ(says("layer"), "epsilon 0.125");
  EXPECT_EQ(says("depth"), "drop 0.375");
  EXPECT_EQ(says("gate"), "hard_sigmoid");
  EXPECT_EQ(says("fc"), "3");
  EXPECT_EQ(says("flat"), "");
  // Queries with keys of a window's 4 pixels, and their weights with values; 4 channels at 4 x 6 pixels.
  EXPECT_EQ(forward_flops(graph, graph.node("attention")), 2 * 2 * (4 * 4 * 6) * 4);
  EXPECT_EQ(forward_flops(graph, graph.node("some")), 2 * 2 * (2 * 5) * (4 * 6));
  EXPECT_EQ(forward_flops(graph, graph.node("linear")), 2 * (6 * 4 * 6) * 4);
}

TEST(Graph, CountsProductsOfGroups) {
  GraphBuilder b({.image = {4, 9, 7}, .name = "g"});
  Value x = b.convolution("c", b.input(), {.out_channels = 6, .kernel = {3, 2}, .groups = 2});
  x = b.transposed_convolution("t", x, {.out_channels = 9, .kernel = {2, 4}, .groups = 3});
  const Graph graph = b.build(x);
  EXPECT_EQ(graph.node("c").shape, (Shape{6, 7, 6}));
  EXPECT_EQ(forward_flops(graph, graph.node("c")), 2 * (6 * 7 * 6) * (4 / 2) * 3 * 2);
  EXPECT_EQ(forward_flops(graph, graph.node("t")), 2 * (6 * 7 * 6) * (9 / 3) * 2 * 4);
}

TEST(GraphBuilder, RefusesEdgesThatAreOffByOne) {
  GraphBuilder b({.image = {6, 4, 3}, .name = "g"});
  const Value x = b.input();
  const auto refused = [](const std::function<void()>& call) { return core::message_of(call); };
  EXPECT_EQ(refused([&] { b.channel_slice("d", x, {.begin = 4, .count = 3}); }),
            "3 channels from 4 are not within 6: channel_slice 'd'");
  EXPECT_EQ(refused([&] { b.channel_slice("d", x, {.begin = 4, .count = 0}); }),
            "0 channels from 4 are not within 6: channel_slice 'd'");
  EXPECT_EQ(b.shape(b.channel_slice("last", x, {.begin = 4, .count = 2})), (Shape{2, 4, 3}));
  EXPECT_EQ(refused([&] { b.channel_pad("d", x, {.before = 1, .after = -1}); }),
            "padding is negative: channel_pad 'd'");
  EXPECT_EQ(refused([&] { b.spatial_pad("d", x, {.top = -4, .bottom = 1}); }),
            "nothing is left of an image of 4x3: spatial_pad 'd'");
  EXPECT_EQ(refused([&] { b.spatial_pad("d", x, {.left = -2, .right = -1}); }),
            "nothing is left of an image of 4x3: spatial_pad 'd'");
  EXPECT_EQ(b.shape(b.spatial_pad("pixel", x, {.top = -3, .left = 0, .right = -2})), (Shape{6, 1, 1}));
  EXPECT_EQ(refused([&] { b.channel_shuffle("d", x, 4); }), "4 groups do not divide 6 channels: channel_shuffle 'd'");
  EXPECT_EQ(refused([&] { b.attention("d", x, {.heads = 2, .shift = 1}); }),
            "window or shift is out of range: attention 'd'");
  EXPECT_EQ(b.shape(b.attention("first", x, {.heads = 2, .queries = 12})), (Shape{2, 12, 1}));
  EXPECT_EQ(b.shape(b.patch_merge("merge", x)), (Shape{24, 2, 2}));
  EXPECT_EQ(refused([&] {
              b.box_rows("d", {x, x}, {.coordinates = 3, .classes = 2});
            }),
            "inputs have different shapes: box_rows 'd': expected [4, 4, 3], got [6, 4, 3]");
  EXPECT_EQ(refused([&] {
              b.box_rows("d", {x, x}, {.coordinates = 4, .classes = 4});
            }),
            "needs images [boxes * 4, H, W] of coordinates, got [6, 4, 3]: box_rows 'd'");
  EXPECT_EQ(refused([&] { b.box_rows("d", {x}, {.coordinates = 3, .classes = 3}); }),
            "needs pairs of inputs: coordinates and scores: box_rows 'd'");
  EXPECT_EQ(b.shape(b.box_rows("rows", {x, x}, {.coordinates = 3, .classes = 3})), (Shape{2 * 4 * 3, 6}));
  EXPECT_EQ(refused([&] { b.local_response_norm("d", x, {.radius = -1}); }),
            "radius is negative: local_response_norm 'd'");
  EXPECT_EQ(refused([&] {
              b.adaptive_average_pool("d", x, {0, 3});
            }),
            "size is not positive: adaptive_average_pool 'd'");
}

// What is wrong with a layer behind an input [6, 4, 3]; "" where nothing is.
std::string problem_with(const std::function<void(GraphBuilder& b, Value x)>& add) {
  GraphBuilder b({.image = {6, 4, 3}, .name = "g"});
  return core::problem_of([&] { add(b, b.input()); });
}
std::string problem_with(const Convolution& op) {
  return problem_with([&](GraphBuilder& b, Value x) { b.convolution("d", x, op); });
}
std::string problem_with(const Pool& op) {
  return problem_with([&](GraphBuilder& b, Value x) { b.max_pool("d", x, op); });
}
std::string problem_with(const BatchNorm& op) {
  return problem_with([&](GraphBuilder& b, Value x) { b.batch_norm("d", x, op); });
}
std::string problem_with(const Attention& op) {
  return problem_with([&](GraphBuilder& b, Value x) { b.attention("d", x, op); });
}
std::string problem_with(const TransposedConvolution& op) {
  return problem_with([&](GraphBuilder& b, Value x) { b.transposed_convolution("d", x, op); });
}
std::string problem_with(const ChannelPad& op) {
  return problem_with([&](GraphBuilder& b, Value x) { b.channel_pad("d", x, op); });
}
std::string problem_with(const SpatialPad& op) {
  return problem_with([&](GraphBuilder& b, Value x) { b.spatial_pad("d", x, op); });
}
std::string problem_with(const BoxRows& op) {
  return problem_with([&](GraphBuilder& b, Value x) { b.box_rows("d", {x, x}, op); });
}

// The least and the most that each number of a convolution or a pool may be, and the next one.
TEST(GraphBuilder, WindowsHaveNumbersFromTheirLeastOn) {
  constexpr auto kExplicit = Padding::Kind::kExplicit;
  EXPECT_EQ(problem_with(Convolution{.out_channels = 1}), "");
  EXPECT_EQ(problem_with(Convolution{.out_channels = 0}), "out_channels is not positive");
  EXPECT_EQ(problem_with(Convolution{.out_channels = 9, .groups = 3}), "");
  EXPECT_EQ(problem_with(Convolution{.out_channels = 6, .groups = 0}),
            "0 groups do not divide 6 channels in and 6 out");
  EXPECT_EQ(problem_with(Convolution{.out_channels = 8, .groups = 4}),
            "4 groups do not divide 6 channels in and 8 out");
  EXPECT_EQ(problem_with(Convolution{.out_channels = 4, .groups = 3}),
            "3 groups do not divide 6 channels in and 4 out");
  for (const Size2d none : {Size2d(0, 1), Size2d(1, 0)}) {
    EXPECT_EQ(problem_with(Convolution{.out_channels = 1, .kernel = none}), "kernel is not positive");
    EXPECT_EQ(problem_with(Convolution{.out_channels = 1, .stride = none}), "stride is not positive");
    EXPECT_EQ(problem_with(Convolution{.out_channels = 1, .dilation = none}), "dilation is not positive");
    EXPECT_EQ(problem_with(TransposedConvolution{.out_channels = 1, .kernel = none}), "kernel is not positive");
  }
  for (const Padding& padding : {Padding{kExplicit, -1, 0, 0, 0}, Padding{kExplicit, 0, -1, 0, 0},
                                 Padding{kExplicit, 0, 0, -1, 0}, Padding{kExplicit, 0, 0, 0, -1}}) {
    EXPECT_EQ(problem_with(Convolution{.out_channels = 1, .padding = padding}), "padding is negative");
  }
  EXPECT_EQ(problem_with(Convolution{.out_channels = 1, .kernel = {4, 3}}), "") << "as large as the image";
  EXPECT_EQ(problem_with(Convolution{.out_channels = 1, .kernel = {5, 1}}),
            "the kernel reaches over 5 pixels of an image of 4 with padding");
  EXPECT_EQ(problem_with(Convolution{.out_channels = 1, .kernel = {1, 4}}),
            "the kernel reaches over 4 pixels of an image of 3 with padding");
  EXPECT_EQ(problem_with(Convolution{.out_channels = 6, .groups = 2, .form = Convolution::Form::kLinear}),
            "only 1x1 without groups has a linear form");

  EXPECT_EQ(problem_with(Pool{.kernel = {2, 3}, .padding = Padding::symmetric(1, 2)}), "");
  for (const Padding& padding : {Padding{kExplicit, 2, 0, 0, 0}, Padding{kExplicit, 0, 2, 0, 0},
                                 Padding{kExplicit, 0, 0, 3, 0}, Padding{kExplicit, 0, 0, 0, 3}}) {
    EXPECT_EQ(problem_with(Pool{.kernel = {2, 3}, .padding = padding}), "padding is not smaller than the kernel");
  }

  EXPECT_EQ(problem_with(TransposedConvolution{.out_channels = 0}), "out_channels is not positive");
  EXPECT_EQ(problem_with(TransposedConvolution{.out_channels = 6, .groups = 0}),
            "0 groups do not divide 6 channels in and 6 out");
  EXPECT_EQ(problem_with(TransposedConvolution{.out_channels = 1, .padding = {0, -1}}), "padding is negative");
  EXPECT_EQ(problem_with(TransposedConvolution{.out_channels = 1, .kernel = 2, .output_padding = 1, .dilation = 2}),
            "");
  EXPECT_EQ(problem_with(TransposedConvolution{.out_channels = 1, .output_padding = {1, 0}}),
            "output_padding 1 is not smaller than stride 1 or dilation 1");
  EXPECT_EQ(problem_with(TransposedConvolution{.out_channels = 1, .output_padding = {0, -1}}),
            "output_padding -1 is not smaller than stride 1 or dilation 1");
}

// The same of all other layers.
TEST(GraphBuilder, OtherLayersHaveNumbersFromTheirLeastOn) {
  EXPECT_EQ(problem_with(BatchNorm{.epsilon = 0}), "epsilon is not positive");
  for (const double decay : {0.0, 1.0}) EXPECT_EQ(problem_with(BatchNorm{.decay = decay}), "");
  for (const double decay : {-0.25, 1.25}) EXPECT_EQ(problem_with(BatchNorm{.decay = decay}), "decay is not in [0, 1]");

  for (const ChannelPad& pad : {ChannelPad{0, 0}, ChannelPad{0, 2}, ChannelPad{2, 0}}) EXPECT_EQ(problem_with(pad), "");
  for (const ChannelPad& pad : {ChannelPad{-1, 2}, ChannelPad{2, -1}}) {
    EXPECT_EQ(problem_with(pad), "padding is negative");
  }
  EXPECT_EQ(problem_with(SpatialPad{.top = -3, .left = -2}), "");
  for (const SpatialPad& pad : {SpatialPad{.top = 1, .bottom = -4}, SpatialPad{.left = 1, .right = -3},
                                SpatialPad{.top = -2, .bottom = -2}, SpatialPad{.left = -1, .right = -2}}) {
    EXPECT_EQ(problem_with(pad), "nothing is left of an image of 4x3");
  }

  EXPECT_EQ(problem_with(Attention{.heads = 2, .window = 1, .shift = 1}), "");
  EXPECT_EQ(problem_with(Attention{.heads = 0}), "6 channels are not queries, keys and values of 0 heads");
  for (const Attention& op : {Attention{.window = -1}, Attention{.shift = -1}, Attention{.window = 1, .shift = 2}}) {
    EXPECT_EQ(problem_with(op), "window or shift is out of range");
  }
  EXPECT_EQ(problem_with(Attention{.queries = -1}), "-1 queries of 12 pixels, or in windows");
  EXPECT_EQ(problem_with(Attention{.window = 1, .queries = 1}), "1 queries of 12 pixels, or in windows");
  EXPECT_EQ(problem_with(Attention{.window = 2}), "windows of 2x2 do not divide an image of 4x3");

  EXPECT_EQ(problem_with(BoxRows{.coordinates = 1, .classes = 1}), "");
  EXPECT_EQ(problem_with(BoxRows{.coordinates = 0, .classes = 1}), "coordinates and classes are not positive");
  EXPECT_EQ(problem_with(BoxRows{.coordinates = 1, .classes = 0}), "coordinates and classes are not positive");
  EXPECT_EQ(problem_with([](GraphBuilder& b, Value) { b.box_rows("d", {}, {.coordinates = 1, .classes = 1}); }),
            "needs pairs of inputs: coordinates and scores");

  for (const double drop : {-0.25, 1.0}) {
    EXPECT_EQ(problem_with([&](GraphBuilder& b, Value x) { b.dropout("d", x, drop); }), "drop is not in [0, 1)");
    EXPECT_EQ(problem_with([&](GraphBuilder& b, Value x) { b.stochastic_depth("d", x, drop); }),
              "drop is not in [0, 1)");
  }
  EXPECT_EQ(problem_with([](GraphBuilder& b, Value x) { b.stochastic_depth("d", b.dropout("e", x, 0), 0); }), "");
  EXPECT_EQ(problem_with([](GraphBuilder& b, Value x) { b.local_response_norm("d", x, {.radius = 0}); }), "");
  EXPECT_EQ(problem_with([](GraphBuilder& b, Value x) { b.layer_norm("d", x, {.epsilon = 0}); }),
            "epsilon is not positive");
  EXPECT_EQ(problem_with([](GraphBuilder& b, Value x) { b.l2_norm("d", x, {.epsilon = 0}); }),
            "epsilon is not positive");
  EXPECT_EQ(problem_with([](GraphBuilder& b, Value x) { b.upsample("d", x, {.factor = 1}); }), "");
  EXPECT_EQ(problem_with([](GraphBuilder& b, Value x) { b.linear("d", b.flatten("e", x), {.out_features = 0}); }),
            "out_features is not positive");
  EXPECT_EQ(problem_with([](GraphBuilder& b, Value x) {
              b.adaptive_average_pool("d", x, {3, 0});
            }),
            "size is not positive");
  EXPECT_EQ(problem_with([](GraphBuilder& b, Value x) { b.channel_slice("d", x, {.begin = -1, .count = 1}); }),
            "1 channels from -1 are not within 6");
  EXPECT_EQ(problem_with([](GraphBuilder& b, Value x) { b.channel_slice("d", x, {.begin = 0, .count = 6}); }), "");
  EXPECT_EQ(problem_with([](GraphBuilder& b, Value x) { b.channel_shuffle("d", x, 0); }),
            "0 groups do not divide 6 channels");
  EXPECT_EQ(problem_with([](GraphBuilder& b, Value x) { b.channel_shuffle("d", x, 6); }), "");
  EXPECT_EQ(problem_with([](GraphBuilder& b, Value x) { b.add("d", {x}); }), "needs two inputs or more");
  EXPECT_EQ(problem_with([](GraphBuilder& b, Value x) { b.concat("d", {x}); }), "needs two inputs or more");
}

// Names, shapes and weight decay of all parameters, and names and shapes of all buffers.
TEST(GraphBuilder, LayersDeclareTheseVariables) {
  GraphBuilder b({.image = {12, 4, 4}, .name = "g"});
  Value x = b.convolution(
      "c", b.input(),
      {.out_channels = 12, .kernel = {3, 1}, .padding = Padding::symmetric(1, 0), .groups = 2, .bias = true});
  x = b.batch_norm("m", b.batch_norm("n", x, {}), {.scale = false});
  x = b.attention("a", b.layer_scale("s", b.layer_norm("l", x, {}), {}), {.heads = 2, .window = 2});
  x = b.transposed_convolution("t", x, {.out_channels = 6, .kernel = {2, 3}, .groups = 2, .bias = true});
  x = b.position_embedding("p", b.class_token("k", b.l2_norm("u", x, {}), {}), {});
  const Graph graph = b.build(b.linear("f", b.flatten("flat", x), {.out_features = 3}));
  std::vector<std::string> parameters, buffers;
  for (const Node& node : graph.nodes) {
    for (const ParameterSpec& spec : node.parameters) {
      parameters.push_back(spec.name + " " + to_string(spec.shape) + (spec.decay ? " decays" : ""));
    }
    for (const BufferSpec& spec : node.buffers) buffers.push_back(spec.name + " " + to_string(spec.shape));
  }
  EXPECT_EQ(parameters,
            (std::vector<std::string>{"c.weight [12, 6, 3, 1] decays", "c.bias [12] decays", "n.weight [12]",
                                      "n.bias [12]", "m.bias [12]", "l.weight [12]", "l.bias [12]", "s [12, 1, 1]",
                                      "a.relative_position_bias_table [9, 2]", "t.weight [4, 3, 2, 3] decays",
                                      "t.bias [6] decays", "u [6]", "k [1, 1, 6]", "p [1, 31, 6]",
                                      "f.weight [3, 186] decays", "f.bias [3] decays"}));
  EXPECT_EQ(buffers, (std::vector<std::string>{"n.running_mean [12]", "n.running_var [12]", "m.running_mean [12]",
                                               "m.running_var [12]", "a.relative_position_index [16]"}));
  const Node& norm = graph.node("n");
  EXPECT_TRUE(norm.parameters[0].init == Initializer::ones());
  EXPECT_TRUE(norm.parameters[1].init == Initializer::zeros());
  EXPECT_TRUE(norm.buffers[0].init == Initializer::zeros());
  EXPECT_TRUE(norm.buffers[1].init == Initializer::ones());
  EXPECT_TRUE(graph.node("l").parameters[0].init == Initializer::ones());
  EXPECT_TRUE(graph.node("l").parameters[1].init == Initializer::zeros());
  EXPECT_TRUE(graph.node("a").parameters[0].init == Initializer::normal(0.02));
  EXPECT_TRUE(graph.node("a").buffers[0].init == Initializer::relative_positions(2));
}

// TensorFlow's documentation of SAME: output = ceil(input / stride), the odd pixel after.
TEST(Padding, SameIsTensorFlows) {
  EXPECT_EQ(resolve_padding(Padding::same(), {224, 224}, 7, 2), (Padding{Padding::Kind::kExplicit, 2, 3, 2, 3}));
  EXPECT_EQ(resolve_padding(Padding::same(), {5, 6}, 3, 1), Padding::all(1));
  EXPECT_EQ(resolve_padding(Padding::same(), {6, 7}, 3, 2), (Padding{Padding::Kind::kExplicit, 0, 1, 1, 1}));
  EXPECT_EQ(resolve_padding(Padding::same(), {8, 8}, 1, 2), Padding::valid());
  EXPECT_EQ(resolve_padding(Padding::same(), {9, 9}, 3, 1, 2), Padding::all(2));
}

Shape pooled(Pool op, int64_t size) {
  GraphBuilder b({.image = {1, size, size}, .name = "g"});
  return b.shape(b.max_pool("p", b.input(), op));
}

TEST(Shapes, CeilModeAddsAWindowThatStartsInside) {
  EXPECT_EQ(pooled({.kernel = 3, .stride = 2}, 8), (Shape{1, 3, 3}));
  EXPECT_EQ(pooled({.kernel = 3, .stride = 2, .ceil_mode = true}, 8), (Shape{1, 4, 4}));
  EXPECT_EQ(pooled({.kernel = 3, .stride = 2, .ceil_mode = true}, 7), (Shape{1, 3, 3})) << "nothing left over";
  // The third window would start in the padding after the image.
  EXPECT_EQ(pooled({.kernel = 2, .stride = 3, .padding = Padding::all(1), .ceil_mode = true}, 5), (Shape{1, 2, 2}));
}

TEST(GraphBuilder, NamesTheNodeThatIsWrong) {
  GraphBuilder b({.image = {3, 8, 8}, .name = "g"});
  const Value x = b.convolution("c", b.input(), {.out_channels = 4, .kernel = 3});
  EXPECT_EQ(core::message_of([&] { b.convolution("c", x, {.out_channels = 4, .kernel = 3}); }),
            "a node of this name exists already: node 'c' of g");
  EXPECT_EQ(core::message_of([&] { b.convolution("d", x, {.out_channels = 4, .kernel = 7}); }),
            "the kernel reaches over 7 pixels of an image of 6 with padding: convolution 'd'");
  EXPECT_EQ(core::message_of([&] { b.convolution("d", x, {.out_channels = 6, .kernel = 1, .groups = 4}); }),
            "4 groups do not divide 4 channels in and 6 out: convolution 'd'");
  EXPECT_EQ(core::message_of([&] { b.linear("d", x, {.out_features = 4}); }),
            "needs a vector [F], got [4, 6, 6]: flatten or pool it first: linear 'd'");
  EXPECT_EQ(core::message_of([&] {
              b.add("d", {x, b.input()});
            }),
            "inputs have different shapes: add 'd': expected [4, 6, 6], got [3, 8, 8]");
  EXPECT_EQ(core::message_of([&] { b.max_pool("d", x, {.kernel = 2, .padding = Padding::all(2)}); }),
            "padding is not smaller than the kernel: max_pool 'd'");
  EXPECT_EQ(core::message_of([&] { b.dropout("d", x, 1.0); }), "drop is not in [0, 1): dropout 'd'");
  EXPECT_EQ(core::message_of([&] { b.multiply("d", x, b.input()); }),
            "inputs have different shapes: multiply 'd': expected [4, 6, 6], got [3, 8, 8]");
  EXPECT_EQ(core::message_of([&] { b.activation("d", Value{9}); }),
            "an input is not a value of this builder: node 'd' of g");
  EXPECT_EQ(core::message_of([] {
              GraphBuilder({.image = {3, 0, 8}, .name = "g"});
            }),
            "a graph's input has an extent that is not positive: g: got [3, 0, 8]");
}

TEST(GraphBuilder, ChecksWhatTransformersAreMadeOf) {
  GraphBuilder b({.image = {6, 4, 4}, .name = "g"});
  const Value x = b.input();
  EXPECT_EQ(core::message_of([&] { b.attention("d", x, {.heads = 4}); }),
            "6 channels are not queries, keys and values of 4 heads: attention 'd'");
  EXPECT_EQ(core::message_of([&] { b.attention("d", x, {.heads = 2, .window = 3}); }),
            "windows of 3x3 do not divide an image of 4x4: attention 'd'");
  EXPECT_EQ(core::message_of([&] { b.position_embedding("d", x, {}); }),
            "needs tokens [C, T, 1], got [6, 4, 4]: position_embedding 'd'");
  EXPECT_EQ(core::message_of([&] { b.attention("d", x, {.heads = 2, .queries = 17}); }),
            "17 queries of 16 pixels, or in windows: attention 'd'");
  EXPECT_EQ(core::message_of(
                [&] { b.convolution("d", x, {.out_channels = 4, .kernel = 3, .form = Convolution::Form::kLinear}); }),
            "only 1x1 without groups has a linear form: convolution 'd'");
}

// torch.nn.MultiheadAttention's names, and those of parameters that are no module's.
TEST(GraphBuilder, NamesParametersOfTransformersAsTorch) {
  GraphBuilder b({.image = {4, 2, 2}, .name = "g"});
  Value x = b.position_embedding("encoder.pos_embedding", b.class_token("class_token", b.input(), {}), {});
  x = b.convolution("attention.in_proj", x,
                    {.out_channels = 12, .kernel = 1, .bias = true, .form = Convolution::Form::kJoinedLinear});
  x = b.attention("attention", x, {.heads = 2, .queries = 2});
  const Graph graph = b.build(b.flatten("flat", b.layer_scale("scale", x, {})));
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    for (const ParameterSpec& spec : node.parameters) names.push_back(spec.name + " " + to_string(spec.shape));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"class_token [1, 1, 4]", "encoder.pos_embedding [1, 5, 4]",
                                             "attention.in_proj_weight [12, 4]", "attention.in_proj_bias [12]",
                                             "scale [4, 1, 1]"}));
  // In and out of 5 tokens; queries with keys and weights with values, 2 x 5 of 4 channels each.
  EXPECT_EQ(graph.forward_flops(), 2 * 5 * 4 * 12 + 2 * 2 * 2 * 5 * 4);
}

TEST(GraphBuilder, RefusesNodesThatNothingNeeds) {
  GraphBuilder b({.image = {3, 8, 8}, .name = "g"});
  const Value used = b.flatten("used", b.input());
  b.activation("unused", used);
  EXPECT_EQ(core::message_of([&] { b.build(used); }), "the graph's output does not need this node: node 'unused' of g");
  EXPECT_EQ(core::message_of([&] {
              b.build(used, {{"same", used.id}});
            }),
            "no output needs this node: node 'unused' of g");
}

// A head and an input that the main output does not need, in front of nodes that it does.
Graph with_head() {
  GraphBuilder b({.image = {3, 8, 8}, .name = "g"});
  const Value trunk = b.convolution("trunk", b.input(), {.out_channels = 4, .kernel = 3});
  const Value hint = b.input("hint", {4, 6, 6});
  const Value head = b.linear("head", b.flatten("flat", b.add("add", {trunk, hint})), {.out_features = 2});
  const Value logits = b.linear("fc", b.global_average_pool("pool", trunk), {.out_features = 10});
  return b.build(logits, {{"auxiliary", head.id, 0.3}});
}

TEST(Graph, HasNamedInputsAndOutputs) {
  const Graph graph = with_head();
  EXPECT_EQ(graph.inputs(), (std::vector<int>{0, 2}));
  EXPECT_EQ(std::get<Input>(graph.nodes[0].op).name, "images");
  EXPECT_EQ(std::get<Input>(graph.node("hint").op).name, "hint");
  EXPECT_EQ(graph.input_shape(), (Shape{3, 8, 8}));
  EXPECT_EQ(graph.output(), graph.node("fc").id);
  EXPECT_EQ(graph.output_shape(), Shape{10});
  ASSERT_EQ(graph.outputs.size(), 2u);
  EXPECT_EQ(graph.outputs[0].name, "logits");
  EXPECT_EQ(graph.outputs[0].loss_weight, 1.0);
  EXPECT_EQ(graph.outputs[1].name, "auxiliary");
  EXPECT_EQ(graph.outputs[1].loss_weight, 0.3);
  EXPECT_TRUE(graph.is_output(graph.node("head").id));
  EXPECT_FALSE(graph.is_output(graph.node("trunk").id));
  EXPECT_TRUE(layer_table(graph).ends_with("outputs: fc as logits, head as auxiliary (loss weight 0.3)\n"))
      << layer_table(graph);
}

TEST(Graph, OfTheMainOutputDropsWhatOnlyOthersNeed) {
  const Graph main = main_output_graph(with_head());
  std::vector<std::string> names;
  for (const Node& node : main.nodes) {
    EXPECT_EQ(node.id, static_cast<int>(names.size()));
    names.push_back(node.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"input", "trunk", "pool", "fc"}));
  EXPECT_EQ(main.node("pool").inputs, std::vector<int>{1});
  EXPECT_EQ(main.node("fc").parameters[0].name, "fc.weight");
  ASSERT_EQ(main.outputs.size(), 1u);
  EXPECT_EQ(main.outputs[0].name, "logits");
  EXPECT_EQ(main.output(), 3);
  EXPECT_EQ(layer_table(main_output_graph(tiny())), layer_table(tiny()));
}

TEST(GraphBuilder, ChecksNamesOfInputsAndOutputs) {
  GraphBuilder b({.image = {3, 8, 8}, .name = "g"});
  EXPECT_EQ(core::message_of([&] { b.input("images", {1}); }),
            "an input of this name exists already: node 'images' of g");
  EXPECT_EQ(core::message_of([&] { b.input("input", {1}); }), "a node of this name exists already: node 'input' of g");
  EXPECT_EQ(core::message_of([&] {
              b.input("depth", {1, 0});
            }),
            "a graph's input has an extent that is not positive: input 'depth' of g: got [1, 0]");
  EXPECT_EQ(core::message_of([&] { b.input("depth", {}); }),
            "a graph needs the shape of its input: input 'depth' of g: expected [C, H, W] or [F], got []");
  const Value x = b.flatten("flat", b.input());
  const auto message = [&](const std::vector<GraphOutput>& outputs) {
    return core::message_of([&] { b.build(outputs); });
  };
  EXPECT_EQ(message({}), "a graph needs an output: output '' of g");
  EXPECT_EQ(message({{"", x.id}}), "an output needs a name: output '' of g");
  EXPECT_EQ(message({{"y", x.id}, {"y", 0}}), "an output of this name exists already: output 'y' of g");
  EXPECT_EQ(message({{"y", 7}}), "an output is not a value of this builder: output 'y' of g");
  EXPECT_EQ(message({{"y", x.id, -0.5}}), "a loss has the weight -0.5: output 'y' of g");
}

TEST(Shapes, OfTransposedConvolutionsAreWhatAConvolutionTakes) {
  for (const int64_t size : {5, 6, 9}) {
    for (const int64_t stride : {1, 2, 3}) {
      GraphBuilder b({.image = {3, size, size}, .name = "g"});
      const Convolution forth{.out_channels = 4, .kernel = 3, .stride = stride, .padding = Padding::all(1)};
      const Value y = b.convolution("forth", b.input(), forth);
      const int64_t lost = (size + 2 - 3) % stride;
      const Value x = b.transposed_convolution(
          "back", y, {.out_channels = 3, .kernel = 3, .stride = stride, .padding = 1, .output_padding = lost});
      EXPECT_EQ(b.shape(x), (Shape{3, size, size})) << size << " / " << stride;
      const Graph graph = b.build(x);
      EXPECT_EQ(graph.node("back").parameters[0].shape, graph.node("forth").parameters[0].shape);
      EXPECT_EQ(forward_flops(graph, graph.node("back")), forward_flops(graph, graph.node("forth")));
    }
  }
}

TEST(GraphBuilder, ChecksAndDescribesUpsamplingLayers) {
  GraphBuilder b({.image = {4, 3, 3}, .name = "g"});
  const auto refused = [&](const TransposedConvolution& op) {
    return core::message_of([&] { b.transposed_convolution("d", b.input(), op); });
  };
  EXPECT_EQ(refused({.out_channels = 6, .kernel = 2, .groups = 4}),
            "4 groups do not divide 4 channels in and 6 out: transposed_convolution 'd'");
  EXPECT_EQ(refused({.out_channels = 6, .kernel = 3, .stride = 2, .output_padding = 2}),
            "output_padding 2 is not smaller than stride 2 or dilation 1: transposed_convolution 'd'");
  EXPECT_EQ(refused({.out_channels = 6, .kernel = 1, .padding = 2}),
            "padding leaves nothing of an image of 3x3: transposed_convolution 'd'");
  EXPECT_EQ(core::message_of([&] { b.upsample("d", b.input(), {.factor = 0}); }),
            "factor is not positive: upsample 'd'");
  Value x = b.transposed_convolution("t", b.input(),
                                     {.out_channels = 8,
                                      .kernel = {3, 5},
                                      .stride = 2,
                                      .padding = {1, 2},
                                      .output_padding = 1,
                                      .dilation = {1, 2},
                                      .groups = 2,
                                      .bias = true});
  x = b.upsample("u", x, {.kind = Upsample::Kind::kBilinear, .factor = 3});
  const Graph graph = b.build(b.upsample("v", x, {}));
  EXPECT_EQ(graph.node("t").description(), "8 x 3x5 / 2, pad 1x2, output pad 1, dilation 1x2, groups 2, bias");
  EXPECT_EQ(graph.node("t").shape, (Shape{8, 6, 10}));
  EXPECT_EQ(graph.node("u").description(), "bilinear x 3");
  EXPECT_EQ(graph.node("v").description(), "nearest x 2");
  EXPECT_EQ(graph.node("v").shape, (Shape{8, 36, 60}));
}

}  // namespace
}  // namespace trainyard::nn::graph_test
