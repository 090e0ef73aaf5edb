// Whitening of a network's first convolution: its filters become the principal components of image patches, each
// divided by its deviation, so that its outputs are uncorrelated and of variance one (Krizhevsky, "Learning multiple
// layers of features from tiny images", 2009, appendix; Jordan, "94% on CIFAR-10 in 3.29 seconds on a single GPU",
// 2024, section 3.2). The layer is then frozen.
//
//   PatchWhitening whitening(graph);
//   whitening.add(images);
//   set.value(*set.find(whitening.weight())).copy_(whitening.filters());
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/graph/graph.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

// What is added to each variance before its root is divided by: airbench's.
inline constexpr double kWhiteningEpsilon = 5e-4;

class PatchWhitening {
 public:
  // Finds the convolution that reads the graph's first input. Throws kInvalidArgument unless there is exactly one, with
  // two filters for each of the P = channels * height * width numbers of a patch, and without groups and dilation.
  explicit PatchWhitening(const Graph& graph);

  // Returns the name of the convolution's weight, [2 * P, channels, height, width].
  [[nodiscard]] const std::string& weight() const { return weight_; }

  // Adds all patches of the convolution's size, at each pixel, of `images`: [N, channels, H, W], float, on the CPU.
  void add(const at::Tensor& images);
  // Returns the mean of the products of two numbers of a patch, [P, P] double; the mean of a number is not subtracted.
  // Throws kInvalidArgument before the first image.
  [[nodiscard]] at::Tensor covariance() const;
  // Returns the filters, [2 * P, channels, height, width] double: the eigenvectors of covariance(), from the largest
  // eigenvalue to the smallest, each divided by sqrt(eigenvalue + epsilon); behind them their negatives. The largest
  // number of each eigenvector is positive, so that the same images give the same filters.
  [[nodiscard]] at::Tensor filters(double epsilon = kWhiteningEpsilon) const;

 private:
  std::string weight_;
  Shape shape_;          // of the weight
  at::Tensor products_;  // [P, P] double, sums
  int64_t patches_ = 0;
};

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
