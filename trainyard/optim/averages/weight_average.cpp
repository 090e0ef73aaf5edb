#include "trainyard/optim/averages/weight_average.h"

#include <cmath>
#include <string>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/optim/optimizers/optimizer.h"

namespace trainyard::optim {

using core::Error;
using core::ErrorCode;

namespace {

constexpr int64_t kAverageGrain = 32768;  // elements a thread at least
constexpr const char* kWeights = "weights/";

const char* kind_name(AverageKind kind) {
  return kind == AverageKind::kExponential ? "exponential" : kind == AverageKind::kEqual ? "equal" : "optimizer";
}

// Returns a set with the declarations and the numbers of `source`. Its gradients are never touched, and so take no
// memory.
std::unique_ptr<nn::ParameterSet> copy_of(const nn::ParameterSet& source) {
  auto set = std::make_unique<nn::ParameterSet>(
      nn::ParameterSetOptions{.dtype = source.dtype(), .device = source.values().device()});
  for (int index = 0; index < static_cast<int>(source.size()); ++index) {
    set->declare(source.segment({index}).spec);
  }
  for (int b = 0; b < static_cast<int>(source.buffer_count()); ++b) {
    set->declare_buffer(source.buffer_spec(b));
    set->provide_buffer(b, source.buffer(b));  // which says its dtype
  }
  set->allocate();
  set->copy_from(source);
  return set;
}

template <typename T>
void move_towards(T* average, const T* values, int64_t count, T weight) {
  at::parallel_for(0, count, kAverageGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) average[i] += weight * (values[i] - average[i]);
  });
}

// Moves `average` towards `values`, which has its form.
void move_towards(const at::Tensor& average, const at::Tensor& values, double weight) {
  const bool flat = average.is_cpu() && average.is_contiguous() && values.is_contiguous();
  if (weight == 1 || !average.is_floating_point()) {
    average.copy_(values);
  } else if (flat && average.scalar_type() == at::kDouble) {
    move_towards(average.mutable_data_ptr<double>(), values.const_data_ptr<double>(), average.numel(), weight);
  } else if (flat && average.scalar_type() == at::kFloat) {
    move_towards(average.mutable_data_ptr<float>(), values.const_data_ptr<float>(), average.numel(),
                 static_cast<float>(weight));
  } else {
    average.lerp_(values, weight);
  }
}

}  // namespace

std::vector<std::string> average_kind_names() {
  return {kind_name(AverageKind::kExponential), kind_name(AverageKind::kEqual), kind_name(AverageKind::kOptimizer)};
}

void WeightAverageOptions::validate() const {
  const auto require = [](bool good, std::string_view what, std::string_view expected, const std::string& actual) {
    if (good) return;
    throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("{} of averaged weights is not usable", what),
                                              .expected = std::string(expected),
                                              .actual = actual});
  };
  require(decay >= 0 && decay < 1, "the decay", "a number in [0, 1)", fmt::format("{}", decay));
  require(every >= 1, "the period", "at least 1 step", std::to_string(every));
  require(first_step >= 0, "the first step", "at least 0", std::to_string(first_step));
  require(kind == AverageKind::kEqual || first_step == 0, "the first step", "0 for an exponential average",
          std::to_string(first_step));
}

WeightAverage::WeightAverage(const WeightAverageOptions& options, const nn::ParameterSet& source,
                             const Optimizer* optimizer)
    : options_(options), source_(&source), optimizer_(optimizer) {
  options_.validate();
  if (options_.kind == AverageKind::kOptimizer && (optimizer == nullptr || !optimizer->has_result())) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "the optimizer keeps no mean of the weights",
                                              .expected = "a schedule-free optimizer",
                                              .remedy = "choose another kind of average"});
  }
  average_ = copy_of(source);
}

double WeightAverage::next_weight() const {
  const auto t = static_cast<double>(updates_ + 1);
  if (options_.kind == AverageKind::kEqual) return 1 / t;
  return 1 - (options_.warmup ? std::min(options_.decay, (1 + t) / (10 + t)) : options_.decay);
}

void WeightAverage::after_step(int64_t step, bool skipped) {
  if (step < options_.first_step) return;
  if (!skipped) {
    ++steps_;
    changed_ = true;
  }
  if (options_.kind == AverageKind::kEqual) {
    // By the number of the step: a skipped one, or a run that asks for the average later, does not move the ends of
    // epochs. The weights count there although this very step was skipped, but never twice. Where workers count
    // together, the numbers of the steps of one have gaps.
    const int64_t done = step + 1 - options_.first_step, ends = done / options_.every;
    const int64_t before = std::exchange(ends_, ends).value_or((done - 1) / options_.every);
    if (ends <= before || !changed_) return;
  } else if (skipped || steps_ % options_.every != 0) {
    return;
  }
  move(next_weight());
  ++updates_;
  changed_ = false;
}

void WeightAverage::take_result() const {
  if (taken_version_ == source_->version()) return;  // the caller may have changed its statistics since
  average_->copy_from(*source_);
  optimizer_->result(average_->values());
  average_->values_changed();
  taken_version_ = source_->version();
}

void WeightAverage::move(double weight) {
  if (options_.kind == AverageKind::kOptimizer) return;
  move_towards(average_->values(), source_->values(), weight);
  const double weight_of_statistics = options_.kind == AverageKind::kEqual ? 1 : weight;
  for (int b = 0; b < static_cast<int>(average_->buffer_count()); ++b) {
    move_towards(average_->buffer(b), source_->buffer(b), weight_of_statistics);
  }
  average_->values_changed();
}

nn::ParameterSet& WeightAverage::weights() const {
  if (options_.kind == AverageKind::kOptimizer) take_result();
  if (updates_ == 0 && options_.kind == AverageKind::kEqual) {
    average_->copy_from(*source_);
    return *average_;
  }
  if (!source_->values().is_cpu()) return *average_;  // where there are no masks
  for (const nn::Segment& segment : source_->segments()) {
    const at::Tensor mask = source_->mask(segment.id);
    if (mask.defined() || average_->mask(segment.id).defined()) average_->set_mask(segment.id, mask);
  }
  return *average_;
}

void WeightAverage::restart() {
  steps_ = updates_ = 0;
  changed_ = false;
  ends_.reset();
  taken_version_.reset();
  average_->copy_from(*source_);
}

void WeightAverage::source_replaced() {
  if (steps_ == 0) restart();
}

void WeightAverage::save(core::StateWriter& writer) const {
  writer.text("kind", kind_name(options_.kind));
  writer.integer("updates", updates_);
  writer.integer("steps", steps_);
  core::ScopedWriter weights_writer(writer, kWeights);
  weights().save(weights_writer);
}

void WeightAverage::load(const core::StateReader& reader) {
  if (const std::string kind = reader.text("kind"); kind != kind_name(options_.kind)) {
    core::log::warning(
        "the checkpoint's averaged weights are of another kind ({} instead of {}): the average begins "
        "anew from its last weights",
        kind, kind_name(options_.kind));
    return restart();
  }
  updates_ = reader.integer("updates");
  steps_ = reader.integer("steps");
  changed_ = steps_ > 0;
  ends_.reset();
  taken_version_.reset();
  average_->load(core::ScopedReader(reader, kWeights));
}

}  // namespace trainyard::optim
