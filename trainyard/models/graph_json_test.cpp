// Every model of the zoo as JSON and back: the graph that is read is the graph that was written, in every part.
#include "trainyard/nn/graph/graph_json.h"

#include <string>

#include <gtest/gtest.h>

#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/graph/graph_text.h"

namespace trainyard::models::graph_json_test {
namespace {

template <typename Spec>
bool same_variables(const std::vector<Spec>& a, const std::vector<Spec>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name || a[i].shape != b[i].shape || !(a[i].init == b[i].init)) return false;
    if constexpr (requires { a[i].decay; }) {
      if (a[i].decay != b[i].decay) return false;
    }
  }
  return true;
}

void expect_round_trip(const std::string& name, std::string_view dataset, const ModelOptions& options) {
  const nn::Graph graph = build_model(name, dataset, options);
  const std::string text = nn::graph_json(graph);
  EXPECT_LT(text.size(), nn::GraphJsonLimits::kBytes / 8) << name << ": the limit is far away";
  EXPECT_LT(graph.nodes.size(), nn::GraphJsonLimits::kNodes / 8) << name;
  const nn::Graph read = nn::parse_graph_json(text, name);
  EXPECT_EQ(nn::graph_text(read), nn::graph_text(graph));
  EXPECT_EQ(nn::graph_json(read), text);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    EXPECT_TRUE(same_variables(read.nodes[i].parameters, graph.nodes[i].parameters))
        << name << " " << graph.nodes[i].name;
    EXPECT_TRUE(same_variables(read.nodes[i].buffers, graph.nodes[i].buffers)) << name << " " << graph.nodes[i].name;
  }
}

TEST(GraphJsonOfModels, EachIsReadAsItWasWritten) {
  for (const DatasetFamily family : kDatasetFamilies) {
    for (const std::string& name : model_names(family)) {
      expect_round_trip(name, family_name(family), {.num_classes = 10});
    }
  }
}

TEST(GraphJsonOfModels, HeadsAndChangedRatesAreKept) {
  expect_round_trip("torchvision/googlenet", "imagenet", {.num_classes = 10, .auxiliary_heads = true});
  expect_round_trip("resnet20", "cifar10",
                    {.num_classes = 10, .stochastic_depth = 0.2, .dropout = 0.3, .batch_norm_decay = 0.5});
}

}  // namespace
}  // namespace trainyard::models::graph_json_test
