// Layer norm, and what transformers are made of.

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/nn/export/onnx_forms.h"
#include "trainyard/nn/graph/attention_windows.h"

namespace trainyard::nn {
namespace {

using Numbers = std::vector<int64_t>;

std::string transpose(OnnxNodeBuilder& b, const std::string& x, Numbers perm) {
  return b.emit("Transpose", {x}, {{"perm", std::move(perm)}});
}

// [windows, 1, tokens, tokens] of 0 and -100
std::vector<float> mask_of(const AttentionWindows& windows) {
  std::vector<float> mask;
  for (int64_t w = 0; w < windows.count; ++w) {
    const int32_t* const regions = windows.regions.data() + w * windows.tokens;
    for (int64_t i = 0; i < windows.tokens; ++i) {
      for (int64_t j = 0; j < windows.tokens; ++j) mask.push_back(regions[i] != regions[j] ? -100.0F : 0.0F);
    }
  }
  return mask;
}

}  // namespace

std::string onnx_form(const LayerNorm& op, OnnxNodeBuilder& b) {
  const bool image = b.shape().size() == 3;
  const std::string x = image ? transpose(b, b.x(), {0, 2, 3, 1}) : b.x();
  const std::string y = b.emit("LayerNormalization", {x, b.parameter(0), b.parameter(1)},
                               {{"axis", int64_t{-1}}, {"epsilon", static_cast<float>(op.epsilon)}});
  return image ? transpose(b, y, {0, 3, 1, 2}) : y;
}

std::string onnx_form(const LayerScale&, OnnxNodeBuilder& b) {
  return b.emit("Mul", {b.x(), b.parameter(0)});
}

// Zeros in front of the pixels and behind the token: their sum has both, whatever the batch.
std::string onnx_form(const ClassToken&, OnnxNodeBuilder& b) {
  const Shape& x = b.shape();
  const int64_t pixels = x[1] * x[2];
  const std::string tokens = b.emit("Reshape", {b.x(), b.integers("shape", {0, x[0], pixels, 1})});
  const std::string behind = b.emit("Pad", {tokens, b.integers("before", {0, 0, 1, 0, 0, 0, 0, 0})});
  const std::string token = b.parameter(0, {1, x[0], 1, 1});
  return b.emit("Add", {behind, b.emit("Pad", {token, b.integers("after", {0, 0, 0, 0, 0, 0, pixels, 0})})});
}

std::string onnx_form(const PositionEmbedding&, OnnxNodeBuilder& b) {
  const std::string columns = transpose(b, b.parameter(0), {0, 2, 1});
  return b.emit("Add", {b.x(), b.emit("Unsqueeze", {columns, b.integers("axes", {3})})});
}

std::string onnx_form(const Attention& op, OnnxNodeBuilder& b) {
  const Shape &x = b.shape(), &y = b.node().shape;
  const AttentionWindows windows = attention_windows(op, x[1], x[2]);
  const int64_t channels = x[0] / 3, depth = channels / op.heads, tokens = windows.tokens;
  std::string cut = b.emit("Reshape", {b.x(), b.integers("flat", {0, x[0], x[1] * x[2]})});
  if (op.window > 0) {
    const std::string pixels = b.integers("pixels", {windows.pixels.begin(), windows.pixels.end()});
    cut = b.emit("Gather", {cut, pixels}, {{"axis", int64_t{2}}});
  }
  cut = b.emit("Reshape", {cut, b.integers("split", {0, 3, op.heads, depth, windows.count, tokens})});
  const std::string parts = transpose(b, cut, {1, 0, 4, 2, 5, 3});  // [3, N, windows, heads, tokens, depth]
  const auto part = [&](const std::string& name, int64_t index) {
    return b.emit("Slice", {parts, b.integers(name + "_begin", {index}), b.integers(name + "_end", {index + 1}),
                            b.integers(name + "_axes", {0})});
  };
  std::string queries = part("queries", 0);
  if (op.queries > 0) {
    queries = b.emit("Slice", {queries, b.integers("asking_begin", {0}), b.integers("asking_end", {op.queries}),
                               b.integers("asking_axes", {4})});
  }
  queries = b.emit("Mul", {queries, b.number("scale", 1 / std::sqrt(static_cast<float>(depth)))});
  std::string scores = b.emit("MatMul", {queries, transpose(b, part("keys", 1), {0, 1, 2, 3, 5, 4})});
  if (op.window > 0) {
    const std::string rows = b.emit("Gather", {b.parameter(0), b.integers("positions", relative_positions(op.window))},
                                    {{"axis", int64_t{0}}});
    const std::string bias = b.emit("Reshape", {rows, b.integers("bias_shape", {tokens, tokens, op.heads})});
    scores = b.emit("Add", {scores, transpose(b, bias, {2, 0, 1})});
  }
  if (!windows.regions.empty()) {
    scores = b.emit("Add", {scores, b.floats("mask", {windows.count, 1, tokens, tokens}, mask_of(windows))});
  }
  const std::string weights = b.emit("Softmax", {scores}, {{"axis", int64_t{-1}}});
  const std::string mixed = b.emit("MatMul", {weights, part("values", 2)});
  const std::string sample =
      b.emit("Squeeze", {mixed, b.integers("parts", {0})});  // [N, windows, heads, queries, depth]
  std::string joined = transpose(b, sample, {0, 2, 4, 1, 3});
  joined = b.emit("Reshape", {joined, b.integers("joined", {0, channels, y[1] * y[2]})});
  if (op.window > 0) {
    Numbers places(windows.pixels.size());
    for (size_t i = 0; i < places.size(); ++i) {
      places[static_cast<size_t>(windows.pixels[i])] = static_cast<int64_t>(i);
    }
    joined = b.emit("Gather", {joined, b.integers("places", std::move(places))}, {{"axis", int64_t{2}}});
  }
  return b.emit("Reshape", {joined, b.integers("shape", {0, channels, y[1], y[2]})});
}

std::string onnx_form(const PatchMerge&, OnnxNodeBuilder& b) {
  const Shape &x = b.shape(), &y = b.node().shape;
  std::string even = b.x();
  if (x[1] % 2 != 0 || x[2] % 2 != 0) {
    even = b.emit("Pad", {even, b.integers("pads", {0, 0, 0, 0, 0, 0, x[1] % 2, x[2] % 2})});
  }
  const std::string squares = b.emit("Reshape", {even, b.integers("squares", {0, x[0], y[1], 2, y[2], 2})});
  return b.emit("Reshape", {transpose(b, squares, {0, 5, 3, 1, 2, 4}), b.integers("shape", {0, y[0], y[1], y[2]})});
}

}  // namespace trainyard::nn
