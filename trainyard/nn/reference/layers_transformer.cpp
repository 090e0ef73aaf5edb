// Layer norm, and what transformers are made of.

#include <cmath>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include "trainyard/nn/graph/attention_windows.h"
#include "trainyard/nn/reference/layers.h"

namespace trainyard::nn::reference {
namespace {

at::Tensor on_device_of(const at::Tensor& x, const std::vector<int64_t>& places) {
  return at::tensor(places, at::kLong).to(x.device());
}

// Cuts an image into windows, and joins these again.
class Windows {
 public:
  Windows(const Attention& op, const at::Tensor& image)
      : windows_(attention_windows(op, image.size(2), image.size(3))), image_(image) {}

  // [N, C, H, W] -> [N * windows, tokens, C]
  at::Tensor cut(const at::Tensor& x) const {
    return x.flatten(2)
        .index_select(2, on_device_of(x, {windows_.pixels.begin(), windows_.pixels.end()}))
        .view({x.size(0), x.size(1), windows_.count, windows_.tokens})
        .permute({0, 2, 3, 1})
        .reshape({-1, windows_.tokens, x.size(1)});
  }
  at::Tensor join(const at::Tensor& windows) const {
    std::vector<int64_t> places(windows_.pixels.size());
    for (size_t i = 0; i < places.size(); ++i)
      places[static_cast<size_t>(windows_.pixels[i])] = static_cast<int64_t>(i);
    return windows.reshape({image_.size(0), -1, windows.size(2)})
        .transpose(1, 2)
        .index_select(2, on_device_of(windows, places))
        .reshape({image_.size(0), -1, image_.size(2), image_.size(3)});
  }

  bool has_regions() const { return !windows_.regions.empty(); }
  // [windows, 1, tokens, tokens] of 0 and -100
  at::Tensor mask() const {
    const at::Tensor regions = on_device_of(image_, {windows_.regions.begin(), windows_.regions.end()})
                                   .view({windows_.count, windows_.tokens});
    return (regions.unsqueeze(1) != regions.unsqueeze(2)).to(image_.scalar_type()).mul_(-100).unsqueeze(1);
  }

 private:
  AttentionWindows windows_;
  at::Tensor image_;
};

}  // namespace

at::Tensor run(const LayerNorm& op, const LayerCall& call) {
  const at::Tensor x = call.x().movedim(1, -1);
  return at::layer_norm(x, {x.size(-1)}, call.variable(0), call.variable(1), op.epsilon).movedim(-1, 1);
}

at::Tensor run(const LayerScale&, const LayerCall& call) {
  return call.x() * call.variable(0);
}

at::Tensor run(const ClassToken&, const LayerCall& call) {
  const at::Tensor pixels = call.x().flatten(2).unsqueeze(3);
  const at::Tensor token = call.variable(0).view({1, -1, 1, 1}).expand({pixels.size(0), -1, 1, 1});
  return at::cat({token, pixels}, 2);
}

at::Tensor run(const PositionEmbedding&, const LayerCall& call) {
  return call.x() + call.variable(0).transpose(1, 2).unsqueeze(3);
}

at::Tensor run(const Attention& op, const LayerCall& call) {
  const at::Tensor& x = call.x();
  const Windows windows(op, x);
  const at::Tensor cut = windows.cut(x);
  const int64_t count = cut.size(0), tokens = cut.size(1), channels = cut.size(2) / 3, depth = channels / op.heads;
  // [3, windows, heads, tokens, depth]
  const at::Tensor parts = cut.reshape({count, tokens, 3, op.heads, depth}).permute({2, 0, 3, 1, 4});
  const int64_t asking = op.queries > 0 ? op.queries : tokens;
  const at::Tensor queries = parts[0].narrow(2, 0, asking) * (1 / std::sqrt(static_cast<double>(depth)));
  at::Tensor scores = queries.matmul(parts[1].transpose(2, 3));
  if (op.window > 0) {
    const at::Tensor bias = call.variable(0).index_select(0, on_device_of(x, relative_positions(op.window)));
    scores = scores + bias.view({tokens, tokens, op.heads}).permute({2, 0, 1});
  }
  if (windows.has_regions()) {
    scores = (scores.view({x.size(0), -1, op.heads, tokens, tokens}) + windows.mask()).view(scores.sizes());
  }
  const at::Tensor mixed = at::softmax(scores, -1).matmul(parts[2]);
  const at::Tensor rows = mixed.transpose(1, 2).reshape({count, asking, channels});
  return op.queries > 0 ? rows.transpose(1, 2).unsqueeze(3) : windows.join(rows);
}

at::Tensor run(const PatchMerge&, const LayerCall& call) {
  const at::Tensor x = at::constant_pad_nd(call.x(), {0, call.x().size(3) % 2, 0, call.x().size(2) % 2});
  const int64_t n = x.size(0), c = x.size(1), h = x.size(2) / 2, w = x.size(3) / 2;
  // A channel of the output counts the column in the 2x2 square first, then the row, then the channel.
  return x.reshape({n, c, h, 2, w, 2}).permute({0, 5, 3, 1, 2, 4}).reshape({n, 4 * c, h, w});
}

}  // namespace trainyard::nn::reference
