#include "trainyard/nn/graph/graph_text.h"

#include <gtest/gtest.h>

namespace trainyard::nn::graph_text_test {
namespace {

TEST(GraphText, SaysWhatEachNodeReads) {
  GraphBuilder b({.image = {3, 8, 8}, .name = "small \"net\""});
  const auto conv = b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3, .bias = false});
  const auto norm = b.batch_norm("norm", conv, {.scale = true});
  const Graph graph =
      b.build(b.linear("fc", b.global_average_pool("pool", b.add("sum", {norm, conv})), {.out_features = 2}));
  const std::string text = graph_text(graph);
  EXPECT_EQ(text.substr(0, text.find("node {")), "name: \"small \\\"net\\\"\"\n");
  EXPECT_NE(text.find("node {\n  name: \"input\"\n  op: \"input\"\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  name: \"sum\"\n  op: \"add\"\n  input: \"norm\"\n  input: \"conv\"\n"), std::string::npos);
  EXPECT_NE(text.find("  parameter { name: \"conv.weight\" shape: [4, 3, 3, 3] }\n"), std::string::npos);
  EXPECT_NE(text.find("  buffer { name: \"norm.running_mean\" shape: [4] }\n"), std::string::npos);
  EXPECT_NE(text.find("\n  shape: [4, 6, 6]\n"), std::string::npos);
  EXPECT_TRUE(text.ends_with("}\noutput { name: \"logits\" node: \"fc\" }\n")) << text;
}

TEST(GraphText, IsThisText) {
  GraphBuilder b({.image = {3, 4, 5}, .name = "a \\b"});
  const auto conv = b.convolution("c", b.input(), {.out_channels = 2});
  const auto norm = b.batch_norm("n", conv);
  EXPECT_EQ(graph_text(b.build(norm, {{"early", conv.id, 0.5}})),
            "name: \"a \\\\b\"\n"
            "node {\n"
            "  name: \"input\"\n"
            "  op: \"input\"\n"
            "  shape: [3, 4, 5]\n"
            "}\n"
            "node {\n"
            "  name: \"c\"\n"
            "  op: \"convolution\"\n"
            "  input: \"input\"\n"
            "  attributes: \"2 x 1x1\"\n"
            "  shape: [2, 4, 5]\n"
            "  parameter { name: \"c.weight\" shape: [2, 3, 1, 1] }\n"
            "}\n"
            "node {\n"
            "  name: \"n\"\n"
            "  op: \"batch_norm\"\n"
            "  input: \"c\"\n"
            "  attributes: \"epsilon 1e-05, decay 0.9\"\n"
            "  shape: [2, 4, 5]\n"
            "  parameter { name: \"n.weight\" shape: [2] }\n"
            "  parameter { name: \"n.bias\" shape: [2] }\n"
            "  buffer { name: \"n.running_mean\" shape: [2] }\n"
            "  buffer { name: \"n.running_var\" shape: [2] }\n"
            "}\n"
            "output { name: \"logits\" node: \"n\" }\n"
            "output { name: \"early\" node: \"c\" }\n");
}

}  // namespace
}  // namespace trainyard::nn::graph_text_test
