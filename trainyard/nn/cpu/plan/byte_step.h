// Base of steps that read or write bytes (nn/graph/quantization.h). They have no backward: a network computes in 8 bits
// in inference only.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/nn/cpu/plan/steps.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {

inline const Node& node_of(const PlanBuilder& builder, int id) {
  return builder.graph().nodes[static_cast<size_t>(id)];
}

// Returns a bound of what the bytes of a scale stand for.
inline float bound_of(const ActivationScale& scale) {
  const int largest = std::max<int>(scale.zero_point, 255 - scale.zero_point);
  return scale.scale * static_cast<float>(largest) * kRoundingUp;
}

// Returns how a kernel writes `value`, all but the pointers.
inline QuantizedOutput output_to(const Value& value, UnitActivation activation = UnitActivation::kNone) {
  QuantizedOutput to{.dtype = value.dtype, .activation = activation};
  if (value.dtype == DataType::kUint8) {
    to.inverse_scale = 1 / value.scale.scale;
    to.zero_point = value.scale.zero_point;
  }
  return to;
}

// Returns the activation that a unit ends with; kNone without one.
UnitActivation activation_of(const PlanBuilder& builder, const Unit& unit);
// Returns " + add + relu6", as far as the unit has them, for the names of kernels.
std::string description_behind(const PlanBuilder& builder, const Unit& unit);

// Notes in run.non_finite the samples that have NaN or infinity in `values`, [batch][a_sample] floats or bfloat16 with
// zeros in pad lanes: for floats that a step of several inputs reads, and whose NaN its bytes would hide. One pass over
// them where all are finite.
void note_non_finite(Run& run, const void* values, int64_t a_sample, DataType dtype);

class ByteStep : public PlanStep {
 public:
  ValueId output() const final { return output_; }
  std::vector<ValueId> inputs() const final { return inputs_; }
  float bound(const Run& /*run*/) const final { return bound_; }
  void plan_backward(PlanBuilder& /*builder*/) final {}
  void backward(Run& /*run*/) final {}

 protected:
  // Says which values the step reads and which one it makes. Call it once, when all of them exist.
  void set_values(PlanBuilder& builder, std::vector<ValueId> inputs, ValueId output) {
    inputs_ = std::move(inputs);
    output_ = output;
    for (ValueId input : inputs_) data_.push_back(builder.data(input));
    output_data_ = builder.data(output);
    const Value& made = builder.value(output);
    if (made.dtype == DataType::kUint8) bound_ = bound_of(made.scale);
  }

  template <typename T = void>
  const T* input_at(const Run& run, size_t which = 0) const {
    return run.at<T>(data_[which]);
  }
  template <typename T = void>
  T* output_at(const Run& run) const {
    return run.at<T>(output_data_);
  }

 private:
  std::vector<ValueId> inputs_;
  ValueId output_ = -1;
  std::vector<BufferId> data_;
  BufferId output_data_;
  float bound_ = kUnbounded;
};

}  // namespace trainyard::nn::cpu
