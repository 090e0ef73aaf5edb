// Measures gradients before an update, for clipping by their norm (NormClip). Makes one pass that reads the
// gradients, and the values when they are needed; flat_update.h multiplies by the factors in its own pass.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/optimizers/host_update.h"
#include "trainyard/optim/optimizers/optimizer_options.h"
#include "trainyard/optim/step/step_state.h"

namespace trainyard::optim {

class Optimizer;

// Returns the factor of gradients with this norm, for kParameter and kGlobal.
double clip_factor(const NormClip& clip, double norm);
// Returns the factor of a unit's gradient, for kAdaptive.
double adaptive_clip_factor(double bound, double gradient_norm, double weight_norm);

class NormClipper {
 public:
  // Throws kNotFound for a pattern of `clip.excluded` that names no parameter.
  NormClipper(const NormClip& clip, const nn::ParameterSet& parameters);

  const NormClip& clip() const { return clip_; }
  // Returns true when the regularization's gradient is clipped, too.
  bool clips_regularization() const { return clip_.rule == NormClipRule::kTensorFlow; }
  bool clips(size_t segment) const { return !excluded_[segment]; }

  // Computes the factors of this step for the trainable parameters of `optimizer`, on the calling thread's intra-op
  // threads, with the same bits on any number of them. `gradients` is [total] in host memory, as in Optimizer::apply().
  void measure(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients);

  // Calls work(factor, first, last) for the elements of a segment between `begin` and `end`, which are multiples of 16
  // or the segment's ends. Units are never split: a unit belongs to the range in which it begins.
  template <typename Work>
  void for_each_run(size_t segment, int64_t begin, int64_t end, const Work& work) const {
    const Units& units = units_[segment];
    if (units.count == 1 || excluded_[segment]) return work(factors_[units.first], begin, end);
    const int64_t offset = units.offset, size = units.size;
    for (int64_t u = (begin - offset + size - 1) / size; u < units.count && offset + u * size < end; ++u) {
      work(factors_[units.first + static_cast<size_t>(u)], offset + u * size, offset + (u + 1) * size);
    }
  }

 private:
  struct Units {                   // of one segment
    int64_t offset = 0, size = 0;  // elements
    int64_t count = 1;             // more than 1 for kAdaptive alone
    size_t first = 0;              // in factors_
  };
  void set_factors();

  NormClip clip_;
  std::vector<bool> excluded_;        // by segment
  std::vector<Units> units_;          // by segment
  std::vector<MeasuredPart> parts_;   // of units, in an order that does not depend on threads
  std::vector<size_t> unit_of_part_;  // in factors_
  std::vector<double> factors_;       // by unit, of all segments
};

// Clips the gradients of optimizer.parameters() in place with ATen's operators, asynchronously on any device. The
// gradients have no loss scale, and include the regularization if the rule clips it.
void clip_with_operators(const Optimizer& optimizer, const NormClipper& clipper);

}  // namespace trainyard::optim
