#include "trainyard/nn/graph/layer_table.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/core.h>

namespace trainyard::nn {
namespace {

using Row = std::array<std::string, 6>;
constexpr size_t kTextColumns = 4;  // aligned left; numbers after them right

std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (int64_t place = static_cast<int64_t>(text.size()) - 3; place > 0; place -= 3) {
    text.insert(static_cast<size_t>(place), 1, ',');
  }
  return text;
}

}  // namespace

std::string layer_table(const Graph& graph) {
  std::vector<Row> rows{{"node", "kind", "attributes", "shape", "parameters", "flops"}};
  for (const Node& node : graph.nodes) {
    rows.push_back({node.name, std::string(node.kind()), node.description(), to_string(node.shape),
                    grouped(parameter_count(node)), grouped(forward_flops(graph, node))});
  }
  rows.push_back({"total", "", "", "", grouped(graph.parameter_count()), grouped(graph.forward_flops())});

  std::array<size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows) {
    for (size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string table = graph.name + "\n";
  for (const Row& row : rows) {
    std::string line;
    for (size_t column = 0; column < row.size(); ++column) {
      if (column > 0) line += "  ";
      line += column < kTextColumns ? fmt::format("{:<{}}", row[column], widths[column])
                                    : fmt::format("{:>{}}", row[column], widths[column]);
    }
    table += line + "\n";
  }
  if (graph.outputs.size() == 1) return table;
  table += "outputs: ";
  for (const GraphOutput& output : graph.outputs) {
    if (&output != &graph.outputs.front()) table += ", ";
    table += fmt::format("{} as {}", graph.nodes[static_cast<size_t>(output.node)].name, output.name);
    if (output.loss_weight != 1) table += fmt::format(" (loss weight {})", output.loss_weight);
  }
  return table + "\n";
}

}  // namespace trainyard::nn
