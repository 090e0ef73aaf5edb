// Convolution, pooling and upsampling, and the means over parts of an image.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/nn/export/onnx_forms.h"

namespace trainyard::nn {
namespace {

std::vector<int64_t> on_both_axes(Size2d size) {
  return {size.height, size.width};
}

std::vector<int64_t> pads(const Padding& padding) {
  return {padding.top, padding.left, padding.bottom, padding.right};
}

// How far the last window reaches beyond the image's end: at least the padding there, more in ceil mode.
int64_t reach(int64_t out, int64_t kernel, int64_t stride, int64_t in, int64_t before, int64_t after) {
  return std::max(after, (out - 1) * stride + kernel - in - before);
}

// [out, in]: row i is the mean of elements floor(i * in / out) to ceil((i + 1) * in / out).
std::vector<float> averaging_matrix(int64_t out, int64_t in) {
  std::vector<float> matrix(static_cast<size_t>(out * in), 0);
  for (int64_t i = 0; i < out; ++i) {
    const int64_t begin = i * in / out, end = ((i + 1) * in + out - 1) / out;
    for (int64_t j = begin; j < end; ++j) matrix[static_cast<size_t>(i * in + j)] = 1 / static_cast<float>(end - begin);
  }
  return matrix;
}

// Rows and columns exchanged.
std::vector<float> transposed(const std::vector<float>& matrix, int64_t rows) {
  const auto columns = static_cast<int64_t>(matrix.size()) / rows;
  std::vector<float> result;
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < rows; ++row) result.push_back(matrix[static_cast<size_t>(row * columns + column)]);
  }
  return result;
}

}  // namespace

std::string onnx_form(const Convolution& op, OnnxNodeBuilder& b) {
  const Shape& x = b.shape();
  const Padding padding = resolve_padding(op.padding, {x[1], x[2]}, op.kernel, op.stride, op.dilation);
  std::vector<std::string> inputs{b.x(),
                                  b.weight({op.out_channels, x[0] / op.groups, op.kernel.height, op.kernel.width})};
  if (op.bias) inputs.push_back(b.parameter(1));
  return b.emit("Conv", std::move(inputs),
                {{"kernel_shape", on_both_axes(op.kernel)},
                 {"strides", on_both_axes(op.stride)},
                 {"pads", pads(padding)},
                 {"dilations", on_both_axes(op.dilation)},
                 {"group", op.groups}});
}

// output_padding is subtracted from the padding after the image if that is large enough: ONNX Runtime rejects an
// output_padding that is not smaller than the stride.
std::string onnx_form(const TransposedConvolution& op, OnnxNodeBuilder& b) {
  std::vector<std::string> inputs{b.x(), b.parameter(0)};
  if (op.bias) inputs.push_back(b.parameter(1));
  const Size2d added(std::min(op.output_padding.height, op.padding.height),
                     std::min(op.output_padding.width, op.padding.width));
  const std::vector<int64_t> pads{op.padding.height, op.padding.width, op.padding.height - added.height,
                                  op.padding.width - added.width};
  const Size2d rest(op.output_padding.height - added.height, op.output_padding.width - added.width);
  return b.emit("ConvTranspose", std::move(inputs),
                {{"kernel_shape", on_both_axes(op.kernel)},
                 {"strides", on_both_axes(op.stride)},
                 {"pads", pads},
                 {"output_padding", on_both_axes(rest)},
                 {"dilations", on_both_axes(op.dilation)},
                 {"group", op.groups}});
}

// The coordinates are ONNX's defaults: half pixels, and the nearest of them.
std::string onnx_form(const Upsample& op, OnnxNodeBuilder& b) {
  const auto factor = static_cast<float>(op.factor);
  const std::string region;  // none
  return b.emit("Resize", {b.x(), region, b.floats("scales", {4}, {1, 1, factor, factor})},
                {{"mode", std::string(op.kind == Upsample::Kind::kNearest ? "nearest" : "linear")}});
}

// ceil_mode is written as the padding that it comes to: what a window that hangs over the edge counts differs between
// runtimes and versions.
std::string onnx_form(const Pool& op, OnnxNodeBuilder& b) {
  const Shape &x = b.shape(), &y = b.node().shape;
  Padding padding = resolve_padding(op.padding, {x[1], x[2]}, op.kernel, op.stride);
  const int64_t bottom = reach(y[1], op.kernel.height, op.stride.height, x[1], padding.top, padding.bottom);
  const int64_t right = reach(y[2], op.kernel.width, op.stride.width, x[2], padding.left, padding.right);
  const bool hangs = bottom > padding.bottom || right > padding.right;

  std::string input = b.x();
  bool count_padding = op.count_padding && padding != Padding::valid();
  if (hangs && count_padding) {
    // The padding counts, what is beyond it does not: only the latter is left to the operator.
    input = b.emit("Pad",
                   {input, b.integers("pads", {0, 0, padding.top, padding.left, 0, 0, padding.bottom, padding.right})});
    padding = {Padding::Kind::kExplicit, 0, bottom - padding.bottom, 0, right - padding.right};
    count_padding = false;
  } else {
    padding.bottom = bottom;
    padding.right = right;
  }
  OnnxNodeBuilder::Attributes attributes{
      {"kernel_shape", on_both_axes(op.kernel)}, {"strides", on_both_axes(op.stride)}, {"pads", pads(padding)}};
  if (op.kind == Pool::Kind::kMax) return b.emit("MaxPool", {input}, std::move(attributes));
  attributes.emplace_back("count_include_pad", int64_t{count_padding});
  return b.emit("AveragePool", {input}, std::move(attributes));
}

std::string onnx_form(const GlobalAveragePool&, OnnxNodeBuilder& b) {
  return b.emit("Flatten", {b.emit("GlobalAveragePool", {b.x()})}, {{"axis", int64_t{1}}});
}

// ONNX has no such pooling. Where the extents divide it is a plain one, else a product with two matrices, as the mean
// over a rectangle is the mean over rows of means over columns.
std::string onnx_form(const AdaptiveAveragePool& op, OnnxNodeBuilder& b) {
  const Shape& x = b.shape();
  if (x[1] % op.size.height == 0 && x[2] % op.size.width == 0) {
    const std::vector<int64_t> window{x[1] / op.size.height, x[2] / op.size.width};
    return b.emit("AveragePool", {b.x()}, {{"kernel_shape", window}, {"strides", window}});
  }
  const std::string rows = b.floats("rows", {op.size.height, x[1]}, averaging_matrix(op.size.height, x[1]));
  const std::string columns =
      b.floats("columns", {x[2], op.size.width}, transposed(averaging_matrix(op.size.width, x[2]), op.size.width));
  return b.emit("MatMul", {b.emit("MatMul", {rows, b.x()}), columns});
}

}  // namespace trainyard::nn
