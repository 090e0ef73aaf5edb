// One node in one pass of naive_layers.h, and the loops that most operations are.
#pragma once

#include <vector>

#include "trainyard/nn/testing/naive_layers.h"

namespace trainyard::nn::naive {

inline int64_t count(const Shape& shape) {
  int64_t product = 1;
  for (int64_t extent : shape) product *= extent;
  return product;
}

struct Call {
  const Node& node;
  const std::vector<const Values*>& inputs;
  std::vector<std::vector<double>> parameters;
  bool training;
  const StepRandom& random;
  Buffers& buffers;

  const Values& x() const { return *inputs[0]; }
  double pixel(int64_t n, int64_t c, int64_t h, int64_t w) const {
    const Shape& s = x().shape;
    return x().data[static_cast<size_t>(((n * s[0] + c) * s[1] + h) * s[2] + w)];
  }
  bool inside(int64_t h, int64_t w) const { return h >= 0 && h < x().shape[1] && w >= 0 && w < x().shape[2]; }
  Values result() const {
    return {x().batch, node.shape, std::vector<double>(static_cast<size_t>(x().batch * count(node.shape)))};
  }
};

// f(n, channel, row, column) for each value of the result, in order.
template <typename Function>
Values each_pixel(const Call& call, Function f) {
  Values y = call.result();
  size_t i = 0;
  for (int64_t n = 0; n < y.batch; ++n) {
    for (int64_t c = 0; c < y.shape[0]; ++c) {
      for (int64_t h = 0; h < y.shape[1]; ++h) {
        for (int64_t w = 0; w < y.shape[2]; ++w) y.data[i++] = f(n, c, h, w);
      }
    }
  }
  return y;
}

template <typename Function>
Values each_value(const Call& call, Function f) {
  Values y = call.result();
  for (size_t i = 0; i < y.data.size(); ++i) y.data[i] = f(i);
  return y;
}

// naive_transformer.cpp
Values run(const LayerNorm& op, const Call& call);
Values run(const LayerScale& op, const Call& call);
Values run(const ClassToken& op, const Call& call);
Values run(const PositionEmbedding& op, const Call& call);
Values run(const Attention& op, const Call& call);
Values run(const PatchMerge& op, const Call& call);

// naive_boxes.cpp
Values run(const L2Norm& op, const Call& call);
Values run(const BoxRows& op, const Call& call);

}  // namespace trainyard::nn::naive
