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

}  // namespace
}  // namespace trainyard::nn::graph_drawing_test
