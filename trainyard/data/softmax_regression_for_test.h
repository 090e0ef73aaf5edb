// Multinomial logistic regression by full-batch gradient descent with momentum: the linear model that shows how hard a
// data set is. For tests only.
#pragma once

#include <ATen/ATen.h>

namespace trainyard::data {

class SoftmaxRegression {
 public:
  // images: [N, D] float; labels: [N] int64 in [0, classes).
  SoftmaxRegression(const at::Tensor& images, const at::Tensor& labels, int64_t classes, int steps)
      : weight_(at::zeros({images.size(1), classes})), bias_(at::zeros({classes})) {
    const at::Tensor target = at::one_hot(labels, classes).to(at::kFloat);
    at::Tensor weight_momentum = at::zeros_like(weight_);
    at::Tensor bias_momentum = at::zeros_like(bias_);
    for (int step = 0; step < steps; ++step) {
      const at::Tensor gradient = (at::softmax(logits(images), 1) - target) / static_cast<double>(images.size(0));
      weight_momentum.mul_(0.9).add_(images.t().matmul(gradient));
      bias_momentum.mul_(0.9).add_(gradient.sum(0));
      weight_.sub_(weight_momentum, kLearningRate);
      bias_.sub_(bias_momentum, kLearningRate);
    }
  }

  double accuracy(const at::Tensor& images, const at::Tensor& labels) const {
    return logits(images).argmax(1).eq(labels).to(at::kDouble).mean().item<double>();
  }

 private:
  static constexpr double kLearningRate = 0.01;

  at::Tensor logits(const at::Tensor& images) const { return images.matmul(weight_) + bias_; }

  at::Tensor weight_, bias_;
};

}  // namespace trainyard::data
