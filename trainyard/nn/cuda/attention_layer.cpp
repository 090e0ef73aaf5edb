// Attention: the fused kernels behind ATen's scaled_dot_product_attention (FlashAttention where dtype and GPU have it),
// which keep no scores. Tables lie on the device, so that a step can be captured.
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>

#include "trainyard/nn/cuda/unit_layer.h"
#include "trainyard/nn/graph/attention_windows.h"
#include "trainyard/nn/reference/layers.h"

namespace trainyard::nn::cuda {
namespace {

// The tables for images of one size.
struct Tables {
  AttentionWindows windows;
  at::Tensor pixels, places;  // [pixels] int64: window by window, and back; undefined where that is the image's order
  at::Tensor mask;            // [windows, 1, tokens, tokens] of 0 and -100 in the activations' dtype; undefined: none
  at::Tensor positions;       // [tokens * tokens] int64: rows of the bias; undefined: no bias
};

at::Tensor on_device(const std::vector<int64_t>& values, const at::Tensor& like) {
  return at::tensor(values, at::kLong).to(like.device());
}

Tables make_tables(const Attention& op, const at::Tensor& x) {
  Tables tables{.windows = attention_windows(op, x.size(2), x.size(3))};
  if (op.window == 0) return tables;
  const AttentionWindows& windows = tables.windows;
  std::vector<int64_t> places(windows.pixels.size());
  for (size_t i = 0; i < places.size(); ++i) places[static_cast<size_t>(windows.pixels[i])] = static_cast<int64_t>(i);
  tables.pixels = on_device({windows.pixels.begin(), windows.pixels.end()}, x);
  tables.places = on_device(places, x);
  tables.positions = on_device(relative_positions(op.window), x);
  if (!windows.regions.empty()) {
    const at::Tensor regions =
        on_device({windows.regions.begin(), windows.regions.end()}, x).view({windows.count, windows.tokens});
    tables.mask = (regions.unsqueeze(1) != regions.unsqueeze(2)).to(x.scalar_type()).mul_(-100).unsqueeze(1);
  }
  return tables;
}

// [positions, rows of the table] of 0 and 1: times the table it gives the rows at those positions.
at::Tensor selection(const at::Tensor& positions, const at::Tensor& table) {
  return (positions.unsqueeze(1) == at::arange(table.size(0), positions.options())).to(table.scalar_type());
}

class AttentionLayer : public UnitLayer {
 public:
  AttentionLayer(const LayerContext& context, const Attention& op, BoundLayer& bound)
      : op_(op), bound_(bound), deterministic_(context.build.kernels.convolutions == ConvolutionPolicy::kByShape) {}

  at::Tensor run(std::span<const at::Tensor> inputs, const StepRandom& random) override {
    return bound_.run_as([this](const reference::LayerCall& call) { return attend(call); }, inputs, random);
  }

 private:
  at::Tensor attend(const reference::LayerCall& call) {
    const Tables& tables = tables_of(call.x());
    at::Tensor x = call.x();
    // ATen's fused kernels keep what their backward needs only where queries, keys or values require a gradient. The
    // bias alone may, where the attention is the first layer that is trained.
    if (tables.positions.defined() && at::GradMode::is_enabled() && !x.requires_grad()) {
      x = x.detach().requires_grad_(true);
    }
    const int64_t images = x.size(0), channels = x.size(1) / 3, depth = channels / op_.heads;
    const int64_t tokens = tables.windows.tokens, asking = op_.queries > 0 ? op_.queries : tokens;
    // Pixels as rows, which channels_last memory has already: [images, pixels, 3 * channels].
    at::Tensor rows = x.permute({0, 2, 3, 1}).reshape({images, -1, x.size(1)});
    if (tables.pixels.defined()) rows = rows.index_select(1, tables.pixels);
    // [3, images * windows, heads, tokens, depth]
    const at::Tensor parts = rows.view({-1, tokens, 3, op_.heads, depth}).permute({2, 0, 3, 1, 4});
    const at::Tensor queries = parts[0].narrow(2, 0, asking);
    const std::optional<at::Tensor> bias = bias_of(call, tables, images);
    const at::Tensor mixed =
        deterministic_ ? std::get<0>(at::_scaled_dot_product_attention_math(queries, parts[1], parts[2], bias))
                       : at::scaled_dot_product_attention(queries, parts[1], parts[2], bias);
    at::Tensor result = mixed.transpose(1, 2).reshape({images, -1, channels});
    if (op_.queries > 0) return result.transpose(1, 2).unsqueeze(3);
    if (tables.places.defined()) result = result.index_select(1, tables.places);
    return result.view({images, x.size(2), x.size(3), channels}).permute({0, 3, 1, 2});
  }

  // What is added to the scores: [1 or images * windows, heads, tokens, tokens].
  std::optional<at::Tensor> bias_of(const reference::LayerCall& call, const Tables& tables, int64_t images) const {
    if (!tables.positions.defined()) return std::nullopt;
    const int64_t tokens = tables.windows.tokens;
    const at::Tensor table = call.variable(0);
    // The gradient of index_select adds up with atomics, that of a product of matrices does not.
    const at::Tensor of_pairs = deterministic_ ? at::matmul(selection(tables.positions, table), table)
                                               : table.index_select(0, tables.positions);
    const at::Tensor bias = of_pairs.view({1, tokens, tokens, op_.heads}).permute({0, 3, 1, 2});
    if (!tables.mask.defined()) return bias.contiguous();
    return (bias + tables.mask)
        .expand({images, tables.windows.count, op_.heads, tokens, tokens})
        .reshape({-1, op_.heads, tokens, tokens});
  }

  // The host's tables become the device's in the first step of a size, which no capture is.
  const Tables& tables_of(const at::Tensor& x) {
    const auto size = std::make_pair(x.size(2), x.size(3));
    const auto known = tables_.find(size);
    return known != tables_.end() ? known->second : tables_.emplace(size, make_tables(op_, x)).first->second;
  }

  const Attention& op_;
  BoundLayer& bound_;
  const bool deterministic_;  // FlashAttention's backward adds up with atomics
  std::map<std::pair<int64_t, int64_t>, Tables> tables_;
};

}  // namespace

std::unique_ptr<UnitLayer> make_attention_layer(const LayerContext& context, const Unit& unit, BoundLayer& bound) {
  const auto* op = std::get_if<Attention>(&context.node(unit.head()).op);
  return op == nullptr ? nullptr : std::make_unique<AttentionLayer>(context, *op, bound);
}

}  // namespace trainyard::nn::cuda
