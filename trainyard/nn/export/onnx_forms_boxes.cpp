// What detectors are made of, beyond the layers of classifiers.

#include <string>
#include <vector>

#include <fmt/core.h>

#include "trainyard/nn/export/onnx_forms.h"

namespace trainyard::nn {

std::string onnx_form(const L2Norm& op, OnnxNodeBuilder& b) {
  const std::string length = b.emit("ReduceL2", {b.x()}, {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{1}}});
  const std::string divisor = b.emit("Max", {length, b.number("epsilon", static_cast<float>(op.epsilon))});
  return b.emit("Mul", {b.emit("Div", {b.x(), divisor}), b.parameter(0, {b.shape()[0], 1, 1})});
}

std::string onnx_form(const BoxRows& op, OnnxNodeBuilder& b) {
  const bool by_box = op.order == BoxRows::Order::kByBox;
  const std::vector<int64_t> order = by_box ? std::vector<int64_t>{0, 1, 3, 2} : std::vector<int64_t>{0, 3, 1, 2};
  const auto part = [&](size_t first, int64_t columns) {
    std::vector<std::string> rows;
    for (size_t i = first; i < b.input_count(); i += 2) {
      const Shape& x = b.shape(i);
      const int64_t boxes = x[0] / columns, pixels = x[1] * x[2];
      // A size of 0 means the input's: the batch.
      const std::string split =
          b.emit("Reshape", {b.x(i), b.integers(fmt::format("boxes{}", i), {0, boxes, columns, pixels})});
      const std::string turned = b.emit("Transpose", {split}, {{"perm", order}});
      rows.push_back(b.emit("Reshape", {turned, b.integers(fmt::format("rows{}", i), {0, boxes * pixels, columns})}));
    }
    return rows.size() == 1 ? rows[0] : b.emit("Concat", rows, {{"axis", int64_t{1}}});
  };
  const std::string coordinates = part(0, op.coordinates), scores = part(1, op.classes);
  return b.emit("Concat", {coordinates, scores}, {{"axis", int64_t{2}}});
}

}  // namespace trainyard::nn
