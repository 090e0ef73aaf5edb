#include "trainyard/nn/graph/graph_drawing.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/xml_text.h"

namespace trainyard::nn {
namespace {

// Kinds that are looked for are coloured; the rest is white.
std::string_view colour(const Node& node) {
  const std::string_view kind = node.kind();
  if (kind == "convolution" || kind == "linear") return "#cfe2ff";
  if (kind == "attention") return "#ffe0b8";
  if (kind.ends_with("norm")) return "#d8f0d8";
  if (kind == "add" || kind == "concat" || kind == "multiply") return "#f6d8e8";
  return kind.ends_with("pool") ? "#eee3f8" : "#ffffff";
}

// "convolution 64 x 7x7 / 2, pad 3"
std::string work(const Node& node) {
  const std::string description = node.description();
  return std::string(node.kind()) + (description.empty() ? "" : " " + description);
}

// A string in Graphviz' language.
std::string quoted_dot(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

// Sizes in the image, in pixels.
constexpr int kBoxWidth = 360, kBoxHeight = 36, kRow = 52, kLane = 14, kMargin = 12;

int top_of(int row) {
  return kMargin + row * kRow;
}

// An arrow that passes nodes by, from row to row.
struct Detour {
  int from, to, lane;
};

// Short ones first, so that they lie inside the long ones.
std::vector<Detour> detours(const Graph& graph) {
  std::vector<Detour> result;
  for (const Node& node : graph.nodes) {
    for (int input : node.inputs) {
      if (input + 1 < node.id) result.push_back({input, node.id, 0});
    }
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const Detour& a, const Detour& b) { return a.to - a.from < b.to - b.from; });
  for (size_t i = 0; i < result.size(); ++i) {
    std::vector<bool> taken(i + 1);
    for (size_t other = 0; other < i; ++other) {
      const bool meet = result[other].from < result[i].to && result[i].from < result[other].to;
      if (meet) taken[static_cast<size_t>(result[other].lane)] = true;
    }
    result[i].lane = static_cast<int>(std::find(taken.begin(), taken.end(), false) - taken.begin());
  }
  return result;
}

std::string box_svg(const Node& node) {
  const int top = top_of(node.id), middle = kMargin + kBoxWidth / 2;
  return fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}" rx="5" fill="{}" stroke="#666"/>)"
                     R"(<text x="{}" y="{}" font-weight="bold">{} {}</text><text x="{}" y="{}">{}</text>)"
                     "\n",
                     kMargin, top, kBoxWidth, kBoxHeight, colour(node), middle, top + 15, core::xml_text(node.name),
                     to_string(node.shape), middle, top + 29, core::xml_text(work(node)));
}

std::string detour_svg(const Detour& detour) {
  const int right = kMargin + kBoxWidth, lane = right + kLane * (detour.lane + 1);
  // It leaves in a box's lower half and arrives in the upper one.
  const int from = top_of(detour.from) + kBoxHeight * 3 / 4, to = top_of(detour.to) + kBoxHeight / 4;
  return fmt::format(R"svg(<path d="M{0} {1}H{2}V{3}H{0}" marker-end="url(#arrow)"/>)svg"
                     "\n",
                     right, from, lane, to);
}

}  // namespace

std::string graph_dot(const Graph& graph) {
  std::string text = fmt::format("digraph {} {{\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n",
                                 quoted_dot(graph.name));
  for (const Node& node : graph.nodes) {
    // \n is a new line to Graphviz, so it is put in behind the quoting of the parts.
    std::string label = quoted_dot(node.name + " " + to_string(node.shape));
    label.insert(label.size() - 1, "\\n");
    const std::string second = quoted_dot(work(node));
    label.insert(label.size() - 1, second.substr(1, second.size() - 2));
    text += fmt::format("  {} [label={}, fillcolor=\"{}\"];\n", quoted_dot(node.name), label, colour(node));
  }
  for (const Node& node : graph.nodes) {
    for (int input : node.inputs) {
      text +=
          fmt::format("  {} -> {};\n", quoted_dot(graph.nodes[static_cast<size_t>(input)].name), quoted_dot(node.name));
    }
  }
  return text + "}\n";
}

std::string graph_svg(const Graph& graph) {
  const std::vector<Detour> passing = detours(graph);
  int lanes = 0;
  std::string body;
  for (const Node& node : graph.nodes) body += box_svg(node);
  body += "<g fill=\"none\" stroke=\"#444\">\n";
  for (const Node& node : graph.nodes) {
    if (std::find(node.inputs.begin(), node.inputs.end(), node.id - 1) == node.inputs.end()) continue;
    body += fmt::format(R"svg(<path d="M{0} {1}V{2}" marker-end="url(#arrow)"/>)svg"
                        "\n",
                        kMargin + kBoxWidth / 2, top_of(node.id - 1) + kBoxHeight, top_of(node.id));
  }
  for (const Detour& detour : passing) {
    body += detour_svg(detour);
    lanes = std::max(lanes, detour.lane + 1);
  }
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="{}" font-family="sans-serif" font-size="11" text-anchor="middle">)"
      "\n<title>{}</title>\n"
      R"(<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#444"/></marker></defs>)"
      "\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</g>\n</svg>\n",
      2 * kMargin + kBoxWidth + kLane * (lanes + 1), top_of(static_cast<int>(graph.nodes.size())) + kMargin,
      core::xml_text(graph.name), body);
}

}  // namespace trainyard::nn
