#include "trainyard/nn/graph/graph_json.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/graph/op_fields.h"

namespace trainyard::nn {
namespace {

using Json = nlohmann::json;  // whose objects are found in logarithmic time, however many members a text has
using OrderedJson = nlohmann::ordered_json;
using core::Error;
using core::ErrorCode;
using Limits = GraphJsonLimits;

constexpr std::string_view kFormat = "trainyard.graph";
constexpr int64_t kVersion = 1;
constexpr int kNesting = 5;  // document, nodes, node, attribute, its members

// The name of an operation in the text. A pool says in an attribute of which kind it is.
struct OpNames {
  std::string_view operator()(const Pool&) const { return "pool"; }
  template <typename Other>
  std::string_view operator()(const Other& op) const {
    Node node;
    node.op = op;
    return node.kind();
  }
};

std::string_view op_name(const Op& op) {
  return std::visit(OpNames{}, op);
}

// Adds attributes to a JSON object.
class FieldWriter {
 public:
  FieldWriter(OrderedJson& json, std::string where) : json_(json), where_(std::move(where)) {}

  void operator()(const char* name, const std::string& value) { json_[name] = value; }
  void operator()(const char* name, bool value) { json_[name] = value; }
  void operator()(const char* name, int64_t value) {
    if (value < -Limits::kNumber || value > Limits::kNumber) refuse(name, std::to_string(value));
    json_[name] = value;
  }
  void operator()(const char* name, double value) {
    if (!std::isfinite(value)) refuse(name, fmt::format("{}", value));
    json_[name] = value;
  }
  void operator()(const char* name, const Size2d& value) { json_[name] = {value.height, value.width}; }
  void operator()(const char* name, const Padding& value) {
    json_[name] = {{"kind", kPaddingKinds[static_cast<size_t>(value.kind)]},
                   {"pixels", {value.top, value.bottom, value.left, value.right}}};
  }
  void operator()(const char* name, const Initializer& value) {
    if (!std::isfinite(value.value)) refuse(name, fmt::format("{}", value.value));
    json_[name] = {{"kind", kInitializerKinds[static_cast<size_t>(value.kind)]},
                   {"value", value.value},
                   {"fan", kFans[static_cast<size_t>(value.fan)]}};
  }
  // Files from before the attribute was added lack it, so false is not written.
  void optional(const char* name, bool value) {
    if (value) json_[name] = value;
  }
  template <typename Enum>
  void choice(const char* name, Enum value, std::span<const std::string_view> names) {
    json_[name] = names[static_cast<size_t>(value)];
  }

 private:
  [[noreturn]] void refuse(const char* name, const std::string& value) const {
    throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("attribute '{}' cannot be saved", name),
                                              .where = where_,
                                              .expected = "a finite number within the limits of docs/formats/graph.md",
                                              .actual = value});
  }

  OrderedJson& json_;
  std::string where_;
};

// Reads members of a JSON object, each once, and refuses what is missing, of another type, or left over.
class FieldReader {
 public:
  FieldReader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json_.is_object()) fail("is not an object", "an object", json_.type_name());
  }

  const Json& member(const char* name) {
    const auto found = json_.find(name);
    if (found == json_.end()) fail("misses an entry", name, "");
    ++read_;
    return *found;
  }
  // Returns a list of at most `most` elements, of exactly `exactly` where that is not 0.
  const Json& list(const char* name, size_t most, size_t exactly = 0) {
    const Json& value = member(name);
    if (!value.is_array() || value.size() > most || (exactly != 0 && value.size() != exactly)) {
      fail(fmt::format("has a '{}' that is not as it should be", name),
           exactly != 0 ? fmt::format("a list of {}", exactly) : fmt::format("a list of at most {}", most),
           value.is_array() ? fmt::format("a list of {}", value.size()) : value.type_name());
    }
    return value;
  }
  int64_t number(const Json& value, const char* name) const {
    // What is unsigned and larger than int64_t would become negative.
    if (!value.is_number_integer() ||
        (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{Limits::kNumber}) ||
        value.get<int64_t>() < -Limits::kNumber) {
      fail(fmt::format("has a '{}' that is not as it should be", name),
           fmt::format("an integer of at most {}", Limits::kNumber),
           value.is_number_integer() ? "one that is too large" : value.type_name());
    }
    return value.get<int64_t>();
  }
  std::string text(const char* name) {
    const Json& value = member(name);
    if (!value.is_string())
      fail(fmt::format("has a '{}' that is not as it should be", name), "a text", value.type_name());
    return value.get<std::string>();
  }
  void done() const {
    if (json_.size() != read_)
      fail("has entries that do not belong there", fmt::format("{}", read_), fmt::format("{} entries", json_.size()));
  }

  void operator()(const char* name, std::string& value) { value = text(name); }
  void operator()(const char* name, bool& value) {
    const Json& json = member(name);
    if (!json.is_boolean())
      fail(fmt::format("has a '{}' that is not as it should be", name), "true or false", json.type_name());
    value = json.get<bool>();
  }
  void optional(const char* name, bool& value) {
    if (json_.contains(name)) (*this)(name, value);
  }
  void operator()(const char* name, int64_t& value) { value = number(member(name), name); }
  void operator()(const char* name, double& value) {
    const Json& json = member(name);
    if (!json.is_number())
      fail(fmt::format("has a '{}' that is not as it should be", name), "a number", json.type_name());
    value = json.get<double>();
  }
  void operator()(const char* name, Size2d& value) {
    const Json& both = list(name, 2, 2);
    value = {number(both[0], name), number(both[1], name)};
  }
  void operator()(const char* name, Padding& value) {
    FieldReader padding(member(name), fmt::format("{}, '{}'", where_, name));
    padding.choice("kind", value.kind, kPaddingKinds);
    const Json& pixels = padding.list("pixels", 4, 4);
    value.top = number(pixels[0], name);
    value.bottom = number(pixels[1], name);
    value.left = number(pixels[2], name);
    value.right = number(pixels[3], name);
    padding.done();
  }
  void operator()(const char* name, Initializer& value) {
    FieldReader init(member(name), fmt::format("{}, '{}'", where_, name));
    init.choice("kind", value.kind, kInitializerKinds);
    init("value", value.value);
    init.choice("fan", value.fan, kFans);
    init.done();
  }
  template <typename Enum>
  void choice(const char* name, Enum& value, std::span<const std::string_view> names) {
    const std::string word = text(name);
    const auto found = std::find(names.begin(), names.end(), word);
    if (found == names.end()) {
      fail(fmt::format("has an unknown value of '{}'", name), fmt::format("{}", fmt::join(names, ", ")), word);
    }
    value = static_cast<Enum>(found - names.begin());
  }

  [[noreturn]] void fail(std::string problem, std::string expected, const std::string& actual) const {
    throw Error(ErrorCode::kCorruptData, {.problem = "the graph " + std::move(problem),
                                          .where = where_,
                                          .expected = std::move(expected),
                                          .actual = actual.substr(0, 80),
                                          .remedy = "save the model again"});
  }

 private:
  const Json& json_;
  std::string where_;
  size_t read_ = 0;
};

// Makes the operation of alternative `index` of Op.
template <size_t index = 0>
Op make_op(std::string_view name, const FieldReader& reader) {
  if constexpr (index == std::variant_size_v<Op>) {
    reader.fail("has an operation that this build does not know", "one of docs/formats/graph.md", std::string(name));
  } else {
    Op op{std::in_place_index<index>};
    if (!std::holds_alternative<Foreign>(op) && op_name(op) == name) return op;
    return make_op<index + 1>(name, reader);
  }
}

void check_elements(const Shape& shape, const FieldReader& reader, const std::string& what) {
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    if (extent < 1 || extent > Limits::kNumber || elements > Limits::kElements / extent) {
      reader.fail(fmt::format("has a {} that is empty or too large", what),
                  fmt::format("at most {} elements", Limits::kElements), to_string(shape));
    }
    elements *= extent;
  }
}

// Reads nodes one by one; each sees those before it.
class NodeReader {
 public:
  NodeReader(Graph& graph, std::string_view where) : graph_(graph), where_(where) {}

  void read(const Json& json) {
    const auto id = static_cast<int>(graph_.nodes.size());
    FieldReader reader(json, place(json, id));
    Node node{.id = id, .name = reader.text("name"), .op = make_op(reader.text("op"), reader)};
    if (node.name.empty() || !names_.insert(node.name).second) reader.fail("has a bad name", "a new one", node.name);
    std::vector<Shape> shapes;
    for (const Json& input : reader.list("inputs", Limits::kInputsOfNode)) {
      const int64_t from = reader.number(input, "inputs");
      if (from < 0 || from >= id) {
        reader.fail("has an input that is no earlier node", fmt::format("0 .. {}", id - 1), std::to_string(from));
      }
      node.inputs.push_back(static_cast<int>(from));
      shapes.push_back(graph_.nodes[static_cast<size_t>(from)].shape);
    }
    std::visit([&](auto& op) { visit_fields(reader, op); }, node.op);
    if (const auto* input = std::get_if<Input>(&node.op)) {
      read_input(*input, node, reader);
    } else {
      infer(node, shapes, reader);
    }
    reader.done();
    for (const ParameterSpec& spec : node.parameters) check_variable(spec.name, spec.shape, reader);
    for (const BufferSpec& spec : node.buffers) check_variable(spec.name, spec.shape, reader);
    check_elements(node.shape, reader, "value");
    graph_.nodes.push_back(std::move(node));
  }

 private:
  std::string place(const Json& json, int id) const {
    const bool named = json.is_object() && json.contains("name") && json["name"].is_string();
    return fmt::format("{}, node {}{}", where_, id,
                       named ? fmt::format(" '{}'", json["name"].get<std::string>().substr(0, 80)) : "");
  }
  void read_input(const Input& input, Node& node, FieldReader& reader) {
    constexpr size_t kDimensions = 8;
    for (const Json& extent : reader.list("shape", kDimensions)) node.shape.push_back(reader.number(extent, "shape"));
    const bool fits = !input.name.empty() && tensors_.insert(input.name).second;
    if (!fits || !node.inputs.empty() || node.shape.empty()) {
      reader.fail("has a bad input", "one with a new name and a shape", input.name);
    }
  }
  void infer(Node& node, const std::vector<Shape>& shapes, const FieldReader& reader) const {
    try {
      infer_node(node, shapes);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidArgument) throw;
      reader.fail("cannot be: " + error.detail().problem, error.detail().expected, error.detail().actual);
    }
  }
  void check_variable(const std::string& name, const Shape& shape, const FieldReader& reader) {
    if (!variables_.insert(name).second) reader.fail("has two variables of one name", "names that differ", name);
    check_elements(shape, reader, "variable");
  }

  Graph& graph_;
  std::string_view where_;
  std::set<std::string> names_, tensors_, variables_;
};

void read_outputs(const Json& list, Graph& graph, const std::string& where) {
  std::set<std::string> names;
  std::vector<bool> needed(graph.nodes.size(), false);
  for (const Json& json : list) {
    FieldReader reader(json, where + ", outputs");
    GraphOutput output{.name = reader.text("name")};
    const int64_t node = reader.number(reader.member("node"), "node");
    reader("loss_weight", output.loss_weight);
    reader.done();
    if (output.name.empty() || !names.insert(output.name).second || node < 0 ||
        node >= static_cast<int64_t>(graph.nodes.size()) || !(output.loss_weight >= 0)) {
      reader.fail("has a bad output", "a new name, a node, and a weight of 0 or more", output.name);
    }
    output.node = static_cast<int>(node);
    needed[static_cast<size_t>(node)] = true;
    graph.outputs.push_back(std::move(output));
  }
  for (size_t id = graph.nodes.size(); id-- > 0;) {
    if (!needed[id]) {
      FieldReader(list.front(), where).fail("has a node that no output needs", "none", graph.nodes[id].name);
    }
    for (const int input : graph.nodes[id].inputs) needed[static_cast<size_t>(input)] = true;
  }
}

Json parse(std::string_view text, const std::string& where) {
  const auto corrupt = [&](std::string problem, std::string expected, std::string actual) {
    return Error(ErrorCode::kCorruptData, {.problem = std::move(problem),
                                           .where = where,
                                           .expected = std::move(expected),
                                           .actual = std::move(actual),
                                           .remedy = "save the model again"});
  };
  if (text.size() > Limits::kBytes) {
    throw corrupt("the graph is too large", fmt::format("at most {} bytes", Limits::kBytes),
                  fmt::format("{}", text.size()));
  }
  try {
    return Json::parse(text, [&](int depth, Json::parse_event_t, Json&) {
      if (depth > kNesting) throw corrupt("the graph is nested too deeply", fmt::format("{} levels", kNesting), "more");
      return true;
    });
  } catch (const nlohmann::json::exception& error) {
    throw corrupt("the graph is no JSON", "what graph_json() writes", error.what());
  }
}

}  // namespace

std::string graph_json(const Graph& graph) {
  if (graph.nodes.size() > Limits::kNodes) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "the graph has too many nodes to be saved",
                                              .where = graph.name,
                                              .expected = fmt::format("at most {}", Limits::kNodes),
                                              .actual = std::to_string(graph.nodes.size())});
  }
  OrderedJson json{{"format", kFormat}, {"version", kVersion}, {"name", graph.name}};
  OrderedJson nodes = OrderedJson::array(), outputs = OrderedJson::array();
  for (const Node& node : graph.nodes) {
    if (std::holds_alternative<Foreign>(node.op)) {
      throw Error(ErrorCode::kUnsupported,
                  {.problem = "a custom layer cannot be saved with its graph",
                   .where = fmt::format("node '{}' of {}", node.name, graph.name),
                   .remedy = "save the weights alone, and build the graph where they are loaded"});
    }
    OrderedJson entry{{"name", node.name}, {"op", op_name(node.op)}, {"inputs", node.inputs}};
    FieldWriter writer(entry, fmt::format("node '{}' of {}", node.name, graph.name));
    Op op = node.op;
    std::visit([&](auto& each) { visit_fields(writer, each); }, op);
    if (std::holds_alternative<Input>(node.op)) entry["shape"] = node.shape;
    nodes.push_back(std::move(entry));
  }
  for (const GraphOutput& output : graph.outputs) {
    outputs.push_back({{"name", output.name}, {"node", output.node}, {"loss_weight", output.loss_weight}});
  }
  json["nodes"] = std::move(nodes);
  json["outputs"] = std::move(outputs);
  try {
    std::string text = json.dump();
    if (text.size() <= Limits::kBytes) return text;
    throw Error(ErrorCode::kInvalidArgument, {.problem = "the graph is too large to be saved",
                                              .where = graph.name,
                                              .expected = fmt::format("at most {} bytes", Limits::kBytes),
                                              .actual = std::to_string(text.size())});
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a name in the graph is not UTF-8",
                                              .where = graph.name,
                                              .remedy = "give its nodes and outputs names in UTF-8"});
  }
}

Graph parse_graph_json(std::string_view text, std::string_view where) {
  const std::string place = fmt::format("{}, the graph", where);
  const Json json = parse(text, place);
  FieldReader reader(json, place);
  if (const std::string format = reader.text("format"); format != kFormat) {
    reader.fail("is of another format", std::string(kFormat), format);
  }
  if (const int64_t version = reader.number(reader.member("version"), "version"); version != kVersion) {
    throw Error(ErrorCode::kUnsupported, {.problem = "the graph is of a version that this build does not know",
                                          .where = place,
                                          .expected = std::to_string(kVersion),
                                          .actual = std::to_string(version),
                                          .remedy = "read it with the release that wrote it, or a later one"});
  }
  Graph graph{.name = reader.text("name")};
  NodeReader nodes(graph, place);
  const Json& node_list = reader.list("nodes", Limits::kNodes);
  for (const Json& node : node_list) nodes.read(node);
  if (graph.nodes.empty() || !std::holds_alternative<Input>(graph.nodes.front().op)) {
    reader.fail("does not begin with an input", "an input", "");
  }
  const Json& outputs = reader.list("outputs", Limits::kNodes);
  if (outputs.empty()) reader.fail("has no output", "one or more", "");
  read_outputs(outputs, graph, place);
  reader.done();
  return graph;
}

}  // namespace trainyard::nn
