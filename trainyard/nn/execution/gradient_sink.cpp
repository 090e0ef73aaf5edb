#include "trainyard/nn/execution/gradient_sink.h"

#include <fmt/core.h>

#include "trainyard/core/base/error.h"

namespace trainyard::nn {

GradientSink::GradientSink(ParameterSet& parameters) : parameters_(&parameters) {}

// States grow on demand: a sink may be made before its set is complete.
GradientSink::State& GradientSink::state(ParameterId id) {
  if (static_cast<size_t>(id.index) >= states_.size()) states_.resize(parameters_->size());
  return states_.at(static_cast<size_t>(id.index));
}

void GradientSink::set_uses(ParameterId id, int uses) {
  state(id).uses = uses;
}

void GradientSink::begin(int micro_step, int micro_steps) {
  if (micro_step < 0 || micro_step >= micro_steps) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "no such micro-step",
                                                          .where = "GradientSink::begin",
                                                          .expected = fmt::format("0 to {}", micro_steps - 1),
                                                          .actual = fmt::format("{}", micro_step)});
  }
  states_.resize(parameters_->size());
  last_micro_step_ = micro_step == micro_steps - 1;
  for (State& each : states_) {
    each.written = 0;
    if (micro_step == 0) {
      each.fresh = true;
      each.told = false;
    }
  }
}

bool GradientSink::overwrite(ParameterId id) const {
  const auto index = static_cast<size_t>(id.index);
  return index >= states_.size() || states_[index].fresh;
}

void GradientSink::write(ParameterId id, const at::Tensor& value) {
  require_unfinished(id);  // before the gradient is touched
  const at::Tensor gradient = parameters_->gradient(id);
  if (value.sizes() != gradient.sizes()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "a gradient has another shape than its parameter",
                                                          .where = parameters_->segment(id).spec.name,
                                                          .expected = to_string(gradient.sizes().vec()),
                                                          .actual = to_string(value.sizes().vec())});
  }
  if (overwrite(id)) {
    gradient.copy_(value);
  } else {
    gradient.add_(value);
  }
  wrote(id);
}

void GradientSink::require_unfinished(ParameterId id) {
  if (state(id).written < state(id).uses) return;
  throw core::Error(core::ErrorCode::kInternal,
                    {.problem = "a gradient is written after its last use",
                     .where = parameters_->segment(id).spec.name,
                     .remedy = "call GradientSink::begin() before the forward of each micro-step, and set_uses() for "
                               "a parameter that backward writes more than once"});
}

void GradientSink::wrote(ParameterId id) {
  require_unfinished(id);
  State& place = state(id);
  place.fresh = false;
  ++place.written;
  if (last_micro_step_ && place.written == place.uses) tell(id);
}

void GradientSink::tell(ParameterId id) {
  if (!std::exchange(state(id).told, true) && listener_) listener_(id);
}

void GradientSink::finish() {
  if (!last_micro_step_) return;
  states_.resize(parameters_->size());
  for (size_t index = states_.size(); index-- > 0;) {
    const ParameterId id{static_cast<int>(index)};
    State& place = states_[index];
    if (place.fresh) parameters_->gradient(id).zero_();
    place.fresh = false;
    place.written = place.uses;
    tell(id);
  }
}

}  // namespace trainyard::nn
