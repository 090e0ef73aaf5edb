#include "trainyard/train/testing/two_scalars.h"

#include <memory>

#include <ATen/ops/ones.h>
#include <ATen/ops/rand_like.h>
#include <torch/nn/module.h>

#include "trainyard/nn/graph/custom_layer.h"

namespace trainyard::train {
namespace {

struct TwoScalars : torch::nn::Module {
  explicit TwoScalars(bool with_noise) : noise(with_noise) {
    a = register_parameter("a", at::ones({1, 1}));
    b = register_parameter("b", at::ones({1, 1}).mul(2));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = x.flatten(1) * a * b;
    return noise && is_training() ? y * at::rand_like(y) : y;
  }
  at::Tensor a, b;
  bool noise;
};

}  // namespace

nn::Graph two_scalars(bool noise) {
  nn::GraphBuilder builder({.image = {1, 1, 1}, .name = "two_scalars"});
  const auto make = [noise] { return std::make_shared<TwoScalars>(noise); };
  return builder.build(builder.foreign("body", builder.input(), nn::foreign_op(make, {1}, "TwoScalars")));
}

}  // namespace trainyard::train
