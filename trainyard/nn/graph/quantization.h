// The scales by which a network computes in integers of 8 bits. A quantized network is a graph without batch norms
// behind convolutions, float parameters, and a Quantization, which an executor gets in its BuildContext:
//
//   BuildContext context{.mode = Mode::kInference, .frozen = true, .parameters = &set, .quantization = scales};
//   auto executor = make_executor("cpu", graph, context);
//
// docs/design/quantization.md describes which layers compute in 8 bits, and how they round.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

// The 8-bit form of a tensor of activations: x = scale * (q - zero_point), q in 0..255. Zero is a number of it.
//   q = clamp(round_half_to_even(x / scale) + zero_point, 0, 255)
// where x / scale is the float product of x and the float 1 / scale, and the sum is made before the clamp.
struct ActivationScale {
  float scale = 1;  // positive and finite
  uint8_t zero_point = 0;
  bool operator==(const ActivationScale&) const = default;
};

// All names are those of the graph's nodes.
struct Quantization {
  // By node: its output is stored in 8 bits. Max pools, flattenings, shuffles and other nodes that only move or pick
  // values have the scale and zero point of their input.
  std::map<std::string, ActivationScale> activations{};
  // By convolution or linear node: it multiplies integers, its input has a scale, and its weights are
  // w = weights[o] * q of its output channel o, q in -127..127. [out channels], positive and finite.
  std::map<std::string, std::vector<float>> weights{};
  // By node that stays in float: the reason, for reports. Executors do not read it.
  std::map<std::string, std::string> in_float{};
  bool operator==(const Quantization&) const = default;
};

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
