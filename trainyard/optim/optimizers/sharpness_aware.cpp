#include "trainyard/optim/optimizers/sharpness_aware.h"

#include <cmath>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/optim/step/segment_parts.h"

namespace trainyard::optim {
namespace {

// The segments that an optimizer updates now.
std::vector<nn::Segment> trainable_segments(const Optimizer& optimizer) {
  std::vector<nn::Segment> all;
  const std::vector<nn::Segment>& segments = optimizer.parameters().segments();
  for (size_t i = 0; i < segments.size(); ++i) {
    if (optimizer.trainable(i)) all.push_back(segments[i]);
  }
  return all;
}

template <typename T>
double sum_of_squares(const T* values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

// By parts of a fixed size, which are added up in their order: the same bits on any number of threads.
template <typename T>
double norm_of(const T* values, const std::vector<SegmentPart>& parts) {
  std::vector<double> sums(parts.size());
  at::parallel_for(0, std::ssize(parts), 16, [&](int64_t first, int64_t last) {
    for (auto p = static_cast<size_t>(first); p < static_cast<size_t>(last); ++p) {
      sums[p] = sum_of_squares(values + parts[p].begin, parts[p].count);
    }
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return std::sqrt(sum);
}

template <typename T>
void move(T* values, const T* gradients, const std::vector<SegmentPart>& parts, double step) {
  const T factor = static_cast<T>(step);
  at::parallel_for(0, std::ssize(parts), 4, [&](int64_t first, int64_t last) {
    for (auto p = static_cast<size_t>(first); p < static_cast<size_t>(last); ++p) {
      for (int64_t i = parts[p].begin; i < parts[p].begin + parts[p].count; ++i) values[i] += factor * gradients[i];
    }
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

double SharpnessAware::climb(const StepState& state) {
  nn::ParameterSet& set = optimizer_->parameters();
  optimizer_->complete_gradients(state);
  const std::vector<nn::Segment> segments = trainable_segments(*optimizer_);
  for (const nn::Segment& segment : segments) {
    const at::Tensor mask = set.mask(segment.id);
    if (mask.defined()) set.gradient(segment.id).masked_fill_(mask.logical_not(), 0);
  }
  const std::vector<SegmentPart> parts = cut_segments(segments);
  const at::Tensor values = set.values(), gradients = set.gradients();
  const bool is_double = values.scalar_type() == at::kDouble;
  const double norm = is_double ? norm_of(gradients.const_data_ptr<double>(), parts)
                                : norm_of(gradients.const_data_ptr<float>(), parts);
  if (!std::isfinite(norm) || norm == 0 || options_.rho == 0) return norm;
  if (!values_.defined()) values_ = at::empty_like(values);
  values_.copy_(values);
  away_ = true;
  if (is_double) {
    move(values.mutable_data_ptr<double>(), gradients.const_data_ptr<double>(), parts, options_.rho / norm);
  } else {
    move(values.mutable_data_ptr<float>(), gradients.const_data_ptr<float>(), parts, options_.rho / norm);
  }
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
