// The images that a network is quantized with: checked, and divided into those that ranges follow from and those that
// methods are compared on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

struct CalibrationImages {
  std::vector<at::Tensor> calibration{}, held_out{};  // [N, ...] float each
  int64_t calibration_count = 0, held_out_count = 0;  // images
  bool shared = false;                                // there was one image only: it is both
  std::vector<std::string> warnings{};                // for people
};

// Holds every fourth image out, at most 64. Throws kUnsupported for a graph of several inputs, kInvalidArgument, which
// names the batch and the image, as quantize() says.
[[nodiscard]] CalibrationImages calibration_images(const Graph& graph, std::span<const at::Tensor> batches);

// Returns the batches in float, checked as calibration_images() does.
[[nodiscard]] std::vector<at::Tensor> checked_batches(const Graph& graph, std::span<const at::Tensor> batches);

}  // namespace trainyard::nn
