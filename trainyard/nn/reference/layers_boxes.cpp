// What detectors are made of, beyond the layers of classifiers.

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "trainyard/nn/reference/layers.h"

namespace trainyard::nn::reference {

// The sum of squares may be larger than a half can be.
at::Tensor run(const L2Norm& op, const LayerCall& call) {
  const at::ScalarType type = call.x().scalar_type();
  const at::Tensor x = at::isReducedFloatingType(type) ? call.x().to(at::kFloat) : call.x();
  const at::Tensor length = x.norm(2, {1}, /*keepdim=*/true).clamp_min(op.epsilon);
  return (x / length * call.variables[0].to(x.scalar_type()).view({1, -1, 1, 1})).to(type);
}

at::Tensor run(const BoxRows& op, const LayerCall& call) {
  // [N, A * columns, H, W] -> [N, A * H * W, columns]
  const auto rows = [&](const at::Tensor& x, int64_t columns) {
    const at::Tensor boxes = x.reshape({x.size(0), x.size(1) / columns, columns, x.size(2) * x.size(3)});
    const bool by_box = op.order == BoxRows::Order::kByBox;
    return (by_box ? boxes.permute({0, 1, 3, 2}) : boxes.permute({0, 3, 1, 2})).reshape({x.size(0), -1, columns});
  };
  std::vector<at::Tensor> coordinates, scores;
  for (size_t i = 0; i < call.inputs.size(); i += 2) {
    coordinates.push_back(rows(call.inputs[i], op.coordinates));
    scores.push_back(rows(call.inputs[i + 1], op.classes));
  }
  return at::cat({at::cat(coordinates, 1), at::cat(scores, 1)}, 2);
}

}  // namespace trainyard::nn::reference
