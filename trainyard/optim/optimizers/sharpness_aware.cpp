#include "trainyard/optim/optimizers/sharpness_aware.h"

#include <cmath>
#include <vector>

#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/optim/optimizers/flat_update.h"
#include "trainyard/optim/optimizers/host_update.h"
#include "trainyard/optim/step/segment_parts.h"

namespace trainyard::optim {
namespace {

// The norm of the gradients that an optimizer is about to use, which are complete.
double norm_of_gradients(const Optimizer& optimizer, const StepState& state) {
  std::vector<MeasuredPart> parts;
  for (int p = 0; p < optimizer.parts().count; ++p) {
    const SegmentPart& part = optimizer.parts().data()[p];
    parts.push_back(
        {.begin = part.begin, .count = part.count, .segment = optimizer.own()[static_cast<size_t>(part.segment)]});
  }
  measure_on_host(optimizer, state, optimizer.parameters().gradients(), parts, /*with_regularization=*/false,
                  /*with_weights=*/false);
  double sum = 0;
  for (const MeasuredPart& part : parts) sum += part.gradient_squares;
  return std::sqrt(sum);
}

template <typename T>
void move(const Optimizer& optimizer, double step) {
  const T factor = static_cast<T>(step);
  T* const values = optimizer.parameters().values().template mutable_data_ptr<T>();
  const T* const gradients = optimizer.parameters().gradients().template const_data_ptr<T>();
  for_each_part(optimizer, [&](const SegmentPart& part, size_t) {
    for (int64_t i = part.begin; i < part.begin + part.count; ++i) values[i] += factor * gradients[i];
  });
}

}  // namespace

void SharpnessAwareOptions::validate() const {
  if (std::isfinite(rho) && rho >= 0) return;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "rho of sharpness-aware minimization is not usable",
                                                        .expected = "a finite number, at least 0",
                                                        .actual = fmt::format("{}", rho)});
}

SharpnessAware::SharpnessAware(Optimizer& optimizer, const SharpnessAwareOptions& options)
    : optimizer_(&optimizer), options_(options) {
  options_.validate();
  if (optimizer.device() == nullptr) return;
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = "sharpness-aware minimization does not work on a device yet",
                     .where = optimizer.parameters().values().device().str(),
                     .expected = "parameters in the host's memory"});
}

double SharpnessAware::perturb(const StepState& state) {
  nn::ParameterSet& set = optimizer_->parameters();
  optimizer_->complete_gradients(state);
  for (const size_t segment : optimizer_->own()) {
    const nn::ParameterId id = set.segments()[segment].id;
    const at::Tensor mask = set.mask(id);
    if (mask.defined() && set.trainable(id)) set.gradient(id).masked_fill_(mask.logical_not(), 0);
  }
  const double norm = norm_of_gradients(*optimizer_, state);
  if (!std::isfinite(norm) || norm == 0 || options_.rho == 0) return norm;
  const at::Tensor values = set.values();
  if (!values_.defined()) values_ = at::empty_like(values);
  values_.copy_(values);
  away_ = true;
  const double step = options_.rho / norm;
  values.scalar_type() == at::kDouble ? move<double>(*optimizer_, step) : move<float>(*optimizer_, step);
  set.values_changed();
  return norm;
}

void SharpnessAware::descend(const StepState& state) {
  // For the second time in the step, but of other gradients: those of a second backward.
  optimizer_->complete_gradients(state);
  put_back();
}

void SharpnessAware::put_back() {
  if (!away_) return;
  optimizer_->parameters().values().copy_(values_);
  optimizer_->parameters().values_changed();
  away_ = false;
}

}  // namespace trainyard::optim
