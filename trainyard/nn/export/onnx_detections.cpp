#include "trainyard/nn/export/onnx_detections.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::nn {
namespace {

using formats::OnnxGraph;
using Values = std::vector<std::string>;
using Attributes = std::vector<std::pair<std::string, formats::OnnxAttribute>>;

constexpr int64_t kOnnxInt64 = 7;  // TensorProto.DataType

// Adds operators and constants, whose names begin with "detections.".
class DetectionOperators {
 public:
  explicit DetectionOperators(OnnxGraph& graph) : graph_(graph) {}

  // Adds an operator and returns its outputs.
  Values emit(const std::string& op_type, Values inputs, const Attributes& attributes, size_t outputs) {
    const std::string name = fmt::format("detections.{}", ++emitted_);
    Values names;
    for (size_t i = 0; i < outputs; ++i) names.push_back(fmt::format("{}.output{}", name, i));
    graph_.nodes.push_back(
        {.op_type = op_type, .name = name, .inputs = std::move(inputs), .outputs = names, .attributes = attributes});
    return names;
  }
  std::string emit(const std::string& op_type, Values inputs, const Attributes& attributes = {}) {
    return emit(op_type, std::move(inputs), attributes, 1)[0];
  }

  std::string integers(std::vector<int64_t> values) {
    const auto count = static_cast<int64_t>(values.size());
    return constant({count}, std::move(values));
  }
  std::string number(float value) { return constant({}, std::vector<float>{value}); }
  std::string floats(std::vector<int64_t> shape, std::vector<float> values) {
    return constant(std::move(shape), std::move(values));
  }

  // [..., begin:end, ...] along an axis.
  std::string slice(const std::string& value, int64_t axis, int64_t begin, int64_t end) {
    return emit("Slice", {value, integers({begin}), integers({end}), integers({axis})});
  }
  std::string reshape(const std::string& value, std::vector<int64_t> shape) {
    return emit("Reshape", {value, integers(std::move(shape))});
  }
  // boxes [batch, n, 4], places [batch, m] -> [batch, m, 4]
  std::string boxes_at(const std::string& boxes, const std::string& places) {
    const std::string columns = emit("Expand", {emit("Unsqueeze", {places, integers({2})}), integers({1, 1, 4})});
    return emit("GatherElements", {boxes, columns}, {{"axis", int64_t{1}}});
  }

 private:
  template <class Numbers>
  std::string constant(std::vector<int64_t> shape, Numbers values) {
    graph_.initializers.push_back(
        {fmt::format("detections.constant{}", ++constants_), std::move(shape), std::move(values)});
    return graph_.initializers.back().name;
  }

  OnnxGraph& graph_;
  int emitted_ = 0, constants_ = 0;
};

// offsets [batch, D, 4] -> corners [batch, D, 4]
std::string decoded(DetectionOperators& to, std::string offsets, const OnnxDetectionOptions& options) {
  const auto boxes = static_cast<int64_t>(options.default_boxes.size()) / 4;
  std::vector<float> centers, sizes;
  for (size_t i = 0; i < options.default_boxes.size(); ++i) {
    (i % 4 < 2 ? centers : sizes).push_back(options.default_boxes[i]);
  }
  if (options.x_first) offsets = to.emit("Gather", {offsets, to.integers({1, 0, 3, 2})}, {{"axis", int64_t{2}}});
  const std::string default_centers = to.floats({boxes, 2}, std::move(centers));
  const std::string default_sizes = to.floats({boxes, 2}, std::move(sizes));
  const std::string moved = to.emit("Div", {to.slice(offsets, 2, 0, 2), to.number(1 / options.center_scale)});
  const std::string center = to.emit("Add", {to.emit("Mul", {moved, default_sizes}), default_centers});
  const std::string log = to.emit("Div", {to.slice(offsets, 2, 2, 4), to.number(1 / options.size_scale)});
  const std::string ratio = to.emit("Exp", {to.emit("Min", {log, to.number(options.largest_log)})});
  const std::string half = to.emit("Mul", {to.emit("Mul", {ratio, default_sizes}), to.number(0.5F)});
  const std::string corners =
      to.emit("Concat", {to.emit("Sub", {center, half}), to.emit("Add", {center, half})}, {{"axis", int64_t{2}}});
  return options.clip ? to.emit("Clip", {corners, to.number(0), to.number(1)}) : corners;
}

// Gives the value a name and makes it an output.
void name_output(OnnxGraph& graph, const std::string& value, formats::OnnxValue output) {
  graph.nodes.push_back(
      {.op_type = "Identity", .name = "detections." + output.name, .inputs = {value}, .outputs = {output.name}});
  graph.outputs.push_back(std::move(output));
}

}  // namespace

void add_detections(formats::OnnxModel& model, const OnnxDetectionOptions& options) {
  constexpr int64_t kOffsets = 4;
  OnnxGraph& graph = model.graph;
  const auto boxes = static_cast<int64_t>(options.default_boxes.size()) / 4;
  const std::vector<int64_t> shape = graph.outputs.empty() ? std::vector<int64_t>{} : graph.outputs[0].shape;
  if (graph.outputs.size() != 1 || shape.size() != 3 || shape[1] != boxes || shape[2] < kOffsets + 2) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "an ONNX model's output is not that of a detector",
                       .where = graph.name,
                       .expected = fmt::format("one output [batch, {}, 4 + classes]", boxes),
                       .actual = fmt::format("{} outputs, [{}]", graph.outputs.size(), fmt::join(shape, ", "))});
  }
  const int64_t classes = shape[2] - kOffsets, objects = classes - 1;
  const int64_t candidates = std::min(options.candidates, boxes);
  const int64_t most = std::min(options.detections, objects * candidates);
  const std::string output = graph.outputs[0].name;
  graph.outputs.clear();
  DetectionOperators to(graph);

  const std::string corners = decoded(to, to.slice(output, 2, 0, kOffsets), options);
  const std::string logits = to.slice(output, 2, kOffsets, kOffsets + classes);
  const std::string softmax = to.emit("Softmax", {logits}, {{"axis", int64_t{2}}});
  const std::string by_class = to.emit("Transpose", {to.slice(softmax, 2, 1, classes)},
                                       {{"perm", std::vector<int64_t>{0, 2, 1}}});  // [batch, objects, D]
  const std::string above = to.emit("Greater", {by_class, to.number(options.min_score)});
  const std::string scores = to.emit("Where", {above, by_class, to.number(0)});

  // The best boxes of each class, of equal scores the first, as an image of its own to NonMaxSuppression, which looks
  // at all boxes of an image in each class.
  const Values best = to.emit("TopK", {scores, to.integers({candidates})}, {{"axis", int64_t{2}}}, 2);
  const std::string places = to.reshape(best[1], {0, objects * candidates});
  const std::string best_boxes = to.boxes_at(corners, places);  // [batch, objects * candidates, 4]
  const std::string selected =
      to.emit("NonMaxSuppression",
              {to.reshape(best_boxes, {-1, candidates, 4}), to.reshape(best[0], {-1, 1, candidates}),
               to.integers({candidates}), to.number(options.overlap_threshold), to.number(options.min_score)});

  // The scores of those that are left, at their places, and 0 at the others.
  const std::string flat = to.reshape(best[0], {-1, candidates});  // [batch * objects, candidates]
  const std::string indices = to.emit("Gather", {selected, to.integers({0, 2})}, {{"axis", int64_t{1}}});
  const std::string count = to.slice(to.emit("Shape", {selected}), 0, 0, 1);
  const std::string nothing = to.emit("Mul", {flat, to.number(0)});
  const std::string left = to.emit("ScatterND", {nothing, indices, to.emit("Expand", {to.number(1), count})});
  const std::string left_scores = to.reshape(to.emit("Mul", {flat, left}), {-1, objects * candidates});

  const Values top = to.emit("TopK", {left_scores, to.integers({most})}, {{"axis", int64_t{1}}}, 2);
  const std::string found = to.emit("Greater", {top[0], to.number(0)});
  const std::string label = to.emit("Add", {to.emit("Div", {top[1], to.integers({candidates})}), to.integers({1})});
  const std::string found_integers = to.emit("Cast", {found}, {{"to", kOnnxInt64}});
  const std::string top_boxes = to.emit(
      "Where", {to.emit("Unsqueeze", {found, to.integers({2})}), to.boxes_at(best_boxes, top[1]), to.number(0)});
  name_output(graph, top_boxes, {"boxes", {-1, most, 4}});
  name_output(graph, top[0], {"scores", {-1, most}});
  name_output(graph, to.emit("Mul", {label, found_integers}), {"labels", {-1, most}, true});
}

}  // namespace trainyard::nn
