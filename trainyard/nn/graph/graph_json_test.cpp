#include "trainyard/nn/graph/graph_json.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/testing/error.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/nn/graph/graph_text.h"
#include "trainyard/nn/testing/opaque_layer.h"

namespace trainyard::nn::graph_json_test {
namespace {

using nlohmann::json;

// Each operation, with attributes that are not the defaults.
Graph every_operation() {
  GraphBuilder b({.image = {6, 16, 16}, .name = "every \"operation\""});
  const auto depth = b.input("depth", {4, 8, 8});
  auto x = b.convolution("conv", b.input(),
                         {.out_channels = 8,
                          .kernel = {3, 5},
                          .stride = {2, 1},
                          .padding = {Padding::Kind::kExplicit, 1, 2, 3, 4},
                          .dilation = {1, 2},
                          .groups = 2,
                          .bias = true,
                          .weight_init = Initializer::variance_scaling(0.3, Initializer::Fan::kAverage),
                          .bias_init = Initializer::uniform(0.1)});
  x = b.batch_norm("norm", x, {.epsilon = 1e-3, .decay = 0.97, .scale = false, .biased_running_variance = true});
  x = b.activation("silu", x, Activation::Function::kSilu);
  x = b.max_pool("max", x, {.kernel = 3, .stride = 1, .padding = Padding::same(), .ceil_mode = true});
  x = b.average_pool("average", x, {.kernel = 2, .stride = 1, .count_padding = true});
  x = b.adaptive_average_pool("adaptive", x, {4, 4});
  x = b.transposed_convolution("wider", x, {.out_channels = 4, .kernel = 2, .stride = 2, .output_padding = 0});
  x = b.concat("concat", {x, depth});
  x = b.channel_shuffle("shuffle", x, 4);
  x = b.channel_pad("channels", x, {.before = 1, .after = 3});
  x = b.spatial_pad("edges", x, {.top = 1, .bottom = 1, .left = -1, .right = 1});
  x = b.channel_slice("slice", x, {.begin = 2, .count = 9});
  x = b.local_response_norm("lrn", x, {.radius = 2, .bias = 2, .alpha = 1e-4, .beta = 0.75});
  x = b.upsample("up", x, {.kind = Upsample::Kind::kBilinear, .factor = 2});
  x = b.layer_scale("scale", b.layer_norm("layer_norm", x, {.epsilon = 1e-6}), {.init = Initializer::constant(0.5)});
  x = b.stochastic_depth("depth_drop", x, 0.25);
  x = b.add("sum", {x, x});
  const auto windows =
      b.attention("windows", b.channel_slice("qkv", x, {.count = 6}), {.heads = 2, .window = 4, .shift = 2});
  auto y = b.patch_merge("merge", windows);
  y = b.class_token("token", y, {.init = Initializer::truncated_normal(0.02)});
  y = b.position_embedding("positions", y, {});
  y = b.convolution("joined", y, {.out_channels = 12, .bias = true, .form = Convolution::Form::kJoinedLinear});
  y = b.attention("attention", y, {.heads = 2, .queries = 1});
  y = b.flatten("flat", y);
  const auto pooled = b.global_average_pool("pool", x);
  const auto gates = b.activation("gates", b.linear("fc1", pooled, {.out_features = 4, .bias = false}),
                                  Activation::Function::kHardSigmoid);
  y = b.dropout("dropout", b.multiply("gated", y, gates), 0.1);
  const auto scores = b.convolution("scores", b.l2_norm("length", x, {.epsilon = 1e-3}), {.out_channels = 6});
  const auto boxes = b.box_rows("boxes", {b.channel_slice("coordinates", x, {.count = 2}), scores},
                                {.coordinates = 1, .classes = 3, .order = BoxRows::Order::kByPixel});
  return b.build(b.linear("fc", y, {.out_features = 5}), {{"auxiliary", gates.id, 0.4}, {"boxes", boxes.id, 0}});
}

void expect_same(const ParameterSpec& a, const ParameterSpec& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.shape, b.shape);
  EXPECT_EQ(a.init, b.init) << a.name;
  EXPECT_EQ(a.decay, b.decay) << a.name;
}

TEST(GraphJson, EveryOperationIsReadAsItWasWritten) {
  const Graph graph = every_operation();
  const std::string text = graph_json(graph);
  const Graph read = parse_graph_json(text, "test");
  EXPECT_EQ(graph_json(read), text);
  EXPECT_EQ(graph_text(read), graph_text(graph));
  EXPECT_EQ(read.name, graph.name);
  ASSERT_EQ(read.nodes.size(), graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    EXPECT_EQ(read.nodes[i].description(), graph.nodes[i].description());
    ASSERT_EQ(read.nodes[i].parameters.size(), graph.nodes[i].parameters.size());
    for (size_t p = 0; p < graph.nodes[i].parameters.size(); ++p) {
      expect_same(read.nodes[i].parameters[p], graph.nodes[i].parameters[p]);
    }
  }
  ASSERT_EQ(read.outputs.size(), 3U);
  EXPECT_EQ(read.outputs[1].loss_weight, 0.4);
  // An attribute that neither the description nor the parameters show.
  EXPECT_EQ(std::get<BatchNorm>(read.node("norm").op).decay, 0.97);
  EXPECT_TRUE(std::get<BatchNorm>(read.node("norm").op).biased_running_variance);
  EXPECT_EQ(std::get<LocalResponseNorm>(read.node("lrn").op).alpha, 1e-4);
  EXPECT_EQ(std::get<Pool>(read.node("average").op).count_padding, true);
}

// A new operation that op_fields.h does not know does not compile; one that the test above leaves out fails here.
TEST(GraphJson, TheTestHasEveryOperation) {
  std::vector<bool> seen(std::variant_size_v<Op>, false);
  for (const Node& node : every_operation().nodes) seen[node.op.index()] = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 1) << "the custom layer alone";
  EXPECT_FALSE(seen[Op(Foreign()).index()]);
}

Graph small() {
  GraphBuilder b({.image = {3, 8, 8}, .name = "small"});
  const auto x = b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3, .padding = Padding::all(1)});
  return b.build(b.linear("fc", b.global_average_pool("pool", b.batch_norm("bn", x)), {.out_features = 2}));
}

// Files from before there was the attribute are read as they were meant, and written without it as they were.
TEST(GraphJson, AnAttributeThatCameLaterMayBeMissing) {
  const json text = json::parse(graph_json(small()));
  const auto& norm =
      *std::find_if(text["nodes"].begin(), text["nodes"].end(), [](const json& node) { return node["name"] == "bn"; });
  EXPECT_FALSE(norm.contains("biased_running_variance"));
  EXPECT_FALSE(std::get<BatchNorm>(parse_graph_json(text.dump(), "old").node("bn").op).biased_running_variance);
}

// Returns the message for the small graph's text with a change.
std::string refused(const std::function<void(json&)>& change, core::ErrorCode code = core::ErrorCode::kCorruptData) {
  json text = json::parse(graph_json(small()));
  change(text);
  return core::message_of([&] { parse_graph_json(text.dump(), "model.st"); }, code);
}

TEST(GraphJson, WhatDoesNotFitIsNamed) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  EXPECT_THAT(
      refused([](json& g) { g["nodes"][1].erase("groups"); }),
      AllOf(HasSubstr("model.st, the graph, node 1 'conv'"), HasSubstr("misses an entry"), HasSubstr("groups")));
  EXPECT_THAT(refused([](json& g) { g["nodes"][1]["colour"] = 1; }), HasSubstr("entries that do not belong there"));
  EXPECT_THAT(refused([](json& g) { g["nodes"][1]["op"] = "convolutoin"; }), HasSubstr("does not know"));
  EXPECT_THAT(refused([](json& g) { g["nodes"][1]["op"] = "foreign"; }), HasSubstr("does not know"));
  EXPECT_THAT(refused([](json& g) {
                g["nodes"][1]["out_channels"] = 5;
                g["nodes"][1]["groups"] = 2;
              }),
              HasSubstr("groups do not divide"));
  EXPECT_THAT(refused([](json& g) { g["nodes"][1]["out_channels"] = 4.5; }), HasSubstr("integer"));
  EXPECT_THAT(refused([](json& g) { g["nodes"][1]["out_channels"] = uint64_t{1} << 63; }), HasSubstr("too large"));
  EXPECT_THAT(refused([](json& g) { g["nodes"][1]["out_channels"] = int64_t{1} << 25; }), HasSubstr("too large"));
  EXPECT_THAT(refused([](json& g) {
                g["nodes"][1]["out_channels"] = 1 << 24;
                g["nodes"][0]["shape"] = {3, 512, 512};
              }),
              HasSubstr("empty or too large"));
  EXPECT_THAT(refused([](json& g) { g["nodes"][1]["form"] = "oval"; }), HasSubstr("expected convolution, linear"));
  EXPECT_THAT(refused([](json& g) { g["nodes"][1]["kernel"] = {3}; }), HasSubstr("a list of 2"));
  EXPECT_THAT(refused([](json& g) { g["nodes"][1]["bias"] = 1; }), HasSubstr("true or false"));
  EXPECT_THAT(refused([](json& g) { g["nodes"][1]["padding"]["extra"] = 1; }), HasSubstr("'padding'"));
  EXPECT_THAT(refused([](json& g) { g["nodes"][2]["inputs"] = {2}; }), HasSubstr("no earlier node"));
  EXPECT_THAT(refused([](json& g) { g["nodes"][2]["inputs"] = {-1}; }), HasSubstr("no earlier node"));
  EXPECT_THAT(refused([](json& g) { g["nodes"][2]["name"] = "conv"; }), HasSubstr("a bad name"));
  EXPECT_THAT(refused([](json& g) { g["nodes"][2]["epsilon"] = nullptr; }), HasSubstr("a number"));
  EXPECT_THAT(refused([](json& g) { g["nodes"][0]["shape"] = {3, 0, 8}; }), HasSubstr("empty or too large"));
  EXPECT_THAT(refused([](json& g) { g["nodes"][0]["shape"] = json::array(); }), HasSubstr("a bad input"));
  EXPECT_THAT(refused([](json& g) { g["outputs"] = json::array(); }), HasSubstr("no output"));
  EXPECT_THAT(refused([](json& g) { g["outputs"][0]["node"] = 5; }), HasSubstr("a bad output"));
  EXPECT_THAT(refused([](json& g) { g["outputs"][0]["node"] = 2; }), HasSubstr("that no output needs"));
  EXPECT_THAT(refused([](json& g) { g["outputs"][0]["loss_weight"] = -1; }), HasSubstr("a bad output"));
  EXPECT_THAT(refused([](json& g) { g["nodes"].erase(0); }), HasSubstr("no earlier node"));
  EXPECT_THAT(refused([](json& g) { g["nodes"] = json::array(); }), HasSubstr("does not begin with an input"));
  EXPECT_THAT(refused([](json& g) { g["format"] = "other"; }), HasSubstr("another format"));
  EXPECT_THAT(refused([](json& g) { g["version"] = 2; }, core::ErrorCode::kUnsupported),
              AllOf(HasSubstr("expected 1, got 2"), HasSubstr("a later one")));
  EXPECT_THAT(refused([](json& g) { g = json::parse("[[[[[[[[[1]]]]]]]]]"); }), HasSubstr("nested too deeply"));
  EXPECT_THAT(refused([](json& g) { g = 1; }), HasSubstr("not an object"));
  // A parameter that has another's name: "conv.weight" as a node's, too.
  EXPECT_THAT(refused([](json& g) {
                json scale{{"name", "conv.weight"}, {"op", "layer_scale"}, {"inputs", {2}}};
                scale["init"] = {{"kind", "constant"}, {"value", 1.0}, {"fan", "in"}};
                g["nodes"].insert(g["nodes"].begin() + 3, scale);
              }),
              HasSubstr("two variables of one name"));
}

// Whole messages, with the place and the numbers of what does not fit.
TEST(GraphJson, SaysWhereAndWhatDoesNotFit) {
  const std::string again = "; save the model again";
  EXPECT_EQ(
      refused([](json& g) { g["name"] = 1; }),
      "the graph has a 'name' that is not as it should be: model.st, the graph: expected a text, got number" + again);
  EXPECT_EQ(refused([](json& g) { g["nodes"][1]["colour"] = 1; }),
            "the graph has entries that do not belong there: model.st, the graph, node 1 'conv': expected 13, got 14 "
            "entries" +
                again);
  EXPECT_EQ(refused([](json& g) { g["nodes"][2]["inputs"] = {2}; }),
            "the graph has an input that is no earlier node: model.st, the graph, node 2 'bn': expected 0 .. 1, got 2" +
                again);
  EXPECT_EQ(refused([](json& g) { g["nodes"][2]["inputs"] = std::vector<int>(4097, 1); }),
            "the graph has a 'inputs' that is not as it should be: model.st, the graph, node 2 'bn': expected a list "
            "of at most "
            "4096, got a list of 4097" +
                again);
  EXPECT_EQ(refused([](json& g) {
              g["nodes"][1]["kernel"] = {3, 3, 3};
            }),
            "the graph has a 'kernel' that is not as it should be: model.st, the graph, node 1 'conv': expected a list "
            "of 2, got "
            "a list of 3" +
                again);
  EXPECT_EQ(refused([](json& g) { g["nodes"][1]["padding"]["pixels"] = 3; }),
            "the graph has a 'pixels' that is not as it should be: model.st, the graph, node 1 'conv', 'padding': "
            "expected a list "
            "of 4, got number" +
                again);
  EXPECT_EQ(refused([](json& g) { g["nodes"][1]["out_channels"] = -(int64_t{1} << 24) - 1; }),
            "the graph has a 'out_channels' that is not as it should be: model.st, the graph, node 1 'conv': expected "
            "an integer "
            "of at most 16777216, got one that is too large" +
                again);
  EXPECT_EQ(refused([](json& g) { g["nodes"][1]["out_channels"] = -(int64_t{1} << 24); }),
            "the graph cannot be: out_channels is not positive: model.st, the graph, node 1 'conv'" + again);
  EXPECT_EQ(refused([](json& g) { g["outputs"].push_back(g["outputs"][0]); }),
            "the graph has a bad output: model.st, the graph, outputs: expected a new name, a node, and a weight of 0 "
            "or more, got logits" +
                again);
  EXPECT_THAT(refused([](json& g) { g["outputs"][0]["node"] = -1; }), ::testing::HasSubstr("a bad output"));
  EXPECT_THAT(refused([](json& g) { g["outputs"][0]["name"] = ""; }), ::testing::HasSubstr("a bad output"));
  // Long names are cut.
  const std::string name(200, 'n');
  EXPECT_EQ(
      refused([&](json& g) {
        g["nodes"][1]["name"] = name;
        g["nodes"][1].erase("groups");
      }),
      "the graph misses an entry: model.st, the graph, node 1 '" + name.substr(0, 80) + "': expected groups" + again);
  // A second input of the same tensor, and one that reads a node.
  const auto second_input = [](const char* tensor, const std::vector<int>& inputs) {
    return refused([&](json& g) {
      json input = g["nodes"][0];
      input["name"] = "second";
      input["tensor"] = tensor;
      input["inputs"] = inputs;
      g["nodes"].insert(g["nodes"].begin() + 1, input);
    });
  };
  const std::string bad =
      "the graph has a bad input: model.st, the graph, node 1 'second': expected one with a new name and a shape, got ";
  EXPECT_EQ(second_input("images", {}), bad + "images" + again);
  EXPECT_EQ(second_input("depth", {0}), bad + "depth" + again);
}

TEST(GraphJson, SaysWhatTheWholeGraphLacks) {
  const std::string again = "; save the model again", graph = "model.st, the graph";
  EXPECT_EQ(refused([](json& g) { g["outputs"] = json::array(); }),
            "the graph has no output: " + graph + ": expected one or more" + again);
  EXPECT_EQ(refused([](json& g) { g["nodes"] = json::array(); }),
            "the graph does not begin with an input: " + graph + ": expected an input" + again);
  EXPECT_EQ(refused([](json& g) { g["outputs"][0]["node"] = 2; }),
            "the graph has a node that no output needs: " + graph + ": expected none, got fc" + again);
  EXPECT_EQ(refused([](json& g) { g["format"] = "other"; }),
            "the graph is of another format: " + graph + ": expected trainyard.graph, got other" + again);
  EXPECT_EQ(refused([](json& g) { g["version"] = 2; }, core::ErrorCode::kUnsupported),
            "the graph is of a version that this build does not know: " + graph +
                ": expected 1, got 2; read it with the release that wrote it, or a later one");
  EXPECT_EQ(refused([](json& g) { g["nodes"][1]["op"] = "convolutoin"; }),
            "the graph has an operation that this build does not know: " + graph +
                ", node 1 'conv': expected one of docs/formats/graph.md, got convolutoin" + again);
  EXPECT_EQ(refused([](json& g) { g["nodes"][2]["name"] = "conv"; }),
            "the graph has a bad name: " + graph + ", node 2 'conv': expected a new one, got conv" + again);
  EXPECT_EQ(refused([](json& g) {
              g["nodes"][0]["shape"] = {3, 0, 8};
            }).substr(0, 39),
            "the graph has a value that is empty or ");
  Graph large = small();
  const Node norm = large.nodes[2];
  large.nodes.resize(GraphJsonLimits::kNodes + 1, norm);
  EXPECT_EQ(core::message_of([&] { graph_json(large); }),
            "the graph has too many nodes to be saved: small: expected at most 16384, got 16385");
}

TEST(GraphJson, NumbersBeyondTheLimitsAreNotWritten) {
  constexpr int64_t kMost = GraphJsonLimits::kNumber;
  const auto message = [](int64_t channels) {
    Graph graph = small();
    std::get<Convolution>(graph.nodes[1].op).out_channels = channels;
    return core::message_of([&] { graph_json(graph); });
  };
  EXPECT_EQ(message(kMost), "no error");
  EXPECT_EQ(message(-kMost), "no error");
  for (const int64_t channels : {kMost + 1, -kMost - 1}) {
    EXPECT_EQ(message(channels),
              "attribute 'out_channels' cannot be saved: node 'conv' of small: expected a finite number within the "
              "limits of docs/formats/graph.md, got " +
                  std::to_string(channels));
  }
  Graph graph = small();
  std::get<Convolution>(graph.nodes[1].op).weight_init.value = std::numeric_limits<double>::infinity();
  EXPECT_EQ(core::message_of([&] { graph_json(graph); }),
            "attribute 'weight_init' cannot be saved: node 'conv' of small: expected a finite number within the limits "
            "of docs/formats/graph.md, got inf");
}

TEST(GraphJson, MemoryIsBounded) {
  const std::string wide = core::message_of(
      [] { parse_graph_json(std::string(GraphJsonLimits::kBytes + 1, ' '), "x"); }, core::ErrorCode::kCorruptData);
  EXPECT_THAT(wide, ::testing::HasSubstr("too large"));
  EXPECT_THAT(refused([](json& g) {
                for (size_t i = 0; i < GraphJsonLimits::kNodes; ++i) g["nodes"].push_back(1);
              }),
              ::testing::HasSubstr("a list of at most 16384"));
}

TEST(GraphJson, DamagedTextsAreErrorsOrGraphs) {
  const std::string good = graph_json(small());
  const auto read = [](const auto& text) {
    formats::expect_value_or_error([&] { parse_graph_json(text, "damaged"); });
  };
  formats::for_each_truncation(good, read);
  formats::for_each_mutation(good, 3000, read);
}

TEST(GraphJson, WhatCannotBeReadBackIsNotWritten) {
  GraphBuilder b({.image = {3}, .name = "foreign"});
  const Graph foreign = b.build(b.foreign("module", b.input(), opaque_layer("M", {2})));
  EXPECT_THAT(core::message_of([&] { graph_json(foreign); }, core::ErrorCode::kUnsupported),
              ::testing::HasSubstr("node 'module' of foreign"));
  Graph named = small();
  named.name = "\xff";
  EXPECT_THAT(core::message_of([&] { graph_json(named); }), ::testing::HasSubstr("UTF-8"));
  Graph nan = small();
  std::get<BatchNorm>(nan.nodes[2].op).decay = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(core::message_of([&] { graph_json(nan); }), ::testing::HasSubstr("'decay' cannot be saved"));
}

}  // namespace
}  // namespace trainyard::nn::graph_json_test
