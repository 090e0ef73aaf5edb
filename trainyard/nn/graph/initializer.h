// The initializer of a parameter or buffer. It is a value, so that graphs can be built, printed and compared without
// tensors.
#pragma once

#include <cstdint>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

struct Initializer {
  enum class Kind {
    kConstant,           // value
    kNormal,             // mean 0, standard deviation `value`
    kTruncatedNormal,    // the same, redrawn outside two standard deviations
    kUniform,            // [-value, value)
    kVarianceScaling,    // TensorFlow's: truncated normal of variance value / fan, fan by `fan`, corrected for the
                         // truncation
    kHeNormal,           // PyTorch's kaiming_normal_: normal of variance 2 / fan, not truncated
    kHeUniform,          // PyTorch's kaiming_uniform_(a = sqrt(5)): uniform of bound 1 / sqrt(fan_in)
    kRelativePositions,  // for Attention: the index in its table of the bias of each pair of `value` x `value` pixels
    kFromModule,         // set by the custom layer that owns it
  };
  enum class Fan { kIn, kOut, kAverage };

  Kind kind = Kind::kConstant;
  double value = 0.0;
  Fan fan = Fan::kIn;

  static Initializer zeros() { return {}; }
  static Initializer ones() { return {Kind::kConstant, 1.0}; }
  static Initializer constant(double value) { return {Kind::kConstant, value}; }
  static Initializer normal(double stddev) { return {Kind::kNormal, stddev}; }
  static Initializer truncated_normal(double stddev) { return {Kind::kTruncatedNormal, stddev}; }
  static Initializer uniform(double bound) { return {Kind::kUniform, bound}; }
  static Initializer variance_scaling(double scale = 1.0, Fan fan = Fan::kIn) {
    return {Kind::kVarianceScaling, scale, fan};
  }
  static Initializer he_normal(Fan fan = Fan::kOut) { return {Kind::kHeNormal, 2.0, fan}; }
  static Initializer he_uniform() { return {Kind::kHeUniform, 1.0}; }

  static Initializer relative_positions(int64_t window) {
    return {Kind::kRelativePositions, static_cast<double>(window)};
  }

  bool operator==(const Initializer&) const = default;
};

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
