#include "trainyard/nn/graph/graph_drawing.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

namespace trainyard::nn::graph_drawing_test {
namespace {

// A residual block inside a longer shortcut, with a name that has to be quoted.
Graph graph() {
  GraphBuilder b({.image = {4, 6, 6}, .name = "a \"small\" <net>"});
  const Convolution op{.out_channels = 4, .kernel = 3, .padding = Padding::all(1)};
  const auto start = b.convolution("first", b.input(), op);
  const auto x = b.add("inner", {b.activation("relu", b.convolution("second", start, op)), start});
  return b.build(b.flatten("flat", b.add("outer", {x, b.input()})));
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(GraphDrawing, DotHasEachNodeAndEachArrow) {
  const std::string dot = graph_dot(graph());
  EXPECT_TRUE(dot.starts_with("digraph \"a \\\"small\\\" <net>\" {\n")) << dot;
  EXPECT_EQ(count(dot, "label="), 7);
  EXPECT_EQ(count(dot, " -> "), 8);
  EXPECT_NE(dot.find("\"second\" [label=\"second [4, 6, 6]\\nconvolution 4 x 3x3, pad 1\""), std::string::npos) << dot;
  EXPECT_NE(dot.find("\"input\" -> \"outer\";\n"), std::string::npos);
}

TEST(GraphDrawing, SvgLeadsArrowsAroundNodesInLanesOfTheirOwn) {
  const std::string svg = graph_svg(graph());
  EXPECT_NE(svg.find("<title>a &quot;small&quot; &lt;net></title>"), std::string::npos) << svg;
  EXPECT_EQ(count(svg, "<rect x="), 7);
  EXPECT_EQ(count(svg, "marker-end"), 8) << "an arrow an input";
  // 372 is the boxes' right edge, 14 a lane: the block's shortcut in the first, the longer one around it.
  EXPECT_EQ(count(svg, "H386V"), 1);
  EXPECT_EQ(count(svg, "H400V"), 1);
  EXPECT_EQ(count(svg, "H414V"), 0);
  EXPECT_EQ(count(svg, "<g"), count(svg, "</g>"));
}

// A convolution and a shortcut of three nodes, on an image that is not square.
Graph three_nodes() {
  GraphBuilder b({.image = {3, 4, 5}, .name = "n\\"});
  return b.build(b.add("s", {b.convolution("c", b.input(), {.out_channels = 3}), b.input()}));
}

TEST(GraphDrawing, DotIsThisText) {
  EXPECT_EQ(graph_dot(three_nodes()),
            "digraph \"n\\\\\" {\n"
            "  node [shape=box, style=filled, fontname=\"sans-serif\"];\n"
            "  \"input\" [label=\"input [3, 4, 5]\\ninput\", fillcolor=\"#ffffff\"];\n"
            "  \"c\" [label=\"c [3, 4, 5]\\nconvolution 3 x 1x1\", fillcolor=\"#cfe2ff\"];\n"
            "  \"s\" [label=\"s [3, 4, 5]\\nadd\", fillcolor=\"#f6d8e8\"];\n"
            "  \"input\" -> \"c\";\n"
            "  \"c\" -> \"s\";\n"
            "  \"input\" -> \"s\";\n"
            "}\n");
}

TEST(GraphDrawing, SvgHasTheseBoxesAndArrows) {
  const std::string svg = graph_svg(three_nodes());
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"412\" height=\"180\" ")) << svg;
  const std::string box = "width=\"360\" height=\"36\" rx=\"5\" fill=", text = "</text><text x=\"192\" ";
  EXPECT_EQ(svg.substr(svg.find("<rect width=")),
            "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
            "<rect x=\"12\" y=\"12\" " +
                box + "\"#ffffff\" stroke=\"#666\"/><text x=\"192\" y=\"27\" font-weight=\"bold\">input [3, 4, 5]" +
                text + "y=\"41\">input</text>\n<rect x=\"12\" y=\"64\" " + box +
                "\"#cfe2ff\" stroke=\"#666\"/><text x=\"192\" y=\"79\" font-weight=\"bold\">c [3, 4, 5]" + text +
                "y=\"93\">convolution 3 x 1x1</text>\n<rect x=\"12\" y=\"116\" " + box +
                "\"#f6d8e8\" stroke=\"#666\"/><text x=\"192\" y=\"131\" font-weight=\"bold\">s [3, 4, 5]" + text +
                "y=\"145\">add</text>\n<g fill=\"none\" stroke=\"#444\">\n"
                "<path d=\"M192 48V64\" marker-end=\"url(#arrow)\"/>\n"
                "<path d=\"M192 100V116\" marker-end=\"url(#arrow)\"/>\n"
                "<path d=\"M372 39H386V125H372\" marker-end=\"url(#arrow)\"/>\n"
                "</g>\n</svg>\n");
}

TEST(GraphDrawing, ColoursTellTheKindsOfLayers) {
  GraphBuilder b({.image = {6, 4, 2}, .name = "kinds"});
  const auto norm = b.batch_norm("norm", b.convolution("conv", b.input(), {.out_channels = 6}));
  const auto layer_norm = b.layer_norm("layer_norm", norm, {});
  const auto joined = b.concat("concat", {b.attention("attention", layer_norm, {.heads = 2}), layer_norm});
  const auto pooled = b.max_pool("max", b.add("add", {joined, joined}), {.kernel = 2, .stride = 2});
  const auto fc = b.linear("fc", b.global_average_pool("mean", pooled), {.out_features = 4});
  const std::string dot = graph_dot(b.build(b.activation("relu", b.multiply("product", fc, fc))));
  const auto colour = [&](const std::string& name) {
    const size_t at = dot.find("fillcolor=\"", dot.find("  \"" + name + "\" ["));
    return dot.substr(at + 11, 7);
  };
  for (const char* const name : {"conv", "fc"}) EXPECT_EQ(colour(name), "#cfe2ff") << name;
  for (const char* const name : {"norm", "layer_norm"}) EXPECT_EQ(colour(name), "#d8f0d8") << name;
  for (const char* const name : {"concat", "add", "product"}) EXPECT_EQ(colour(name), "#f6d8e8") << name;
  for (const char* const name : {"max", "mean"}) EXPECT_EQ(colour(name), "#eee3f8") << name;
  for (const char* const name : {"input", "relu"}) EXPECT_EQ(colour(name), "#ffffff") << name;
  EXPECT_EQ(colour("attention"), "#ffe0b8");
}

}  // namespace
}  // namespace trainyard::nn::graph_drawing_test
