#include "trainyard/optim/scaling/loss_scaler.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <string>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/optim/step/device_kernels.h"
#include "trainyard/optim/step/finite.h"

namespace trainyard::optim {
namespace {

// What a rule begins with and how it moves.
struct RuleNumbers {
  const char* name;
  LossScaleRule rule;
  double scale;
  LossScaleSteps steps;
};

constexpr std::array kRules = {
    RuleNumbers{"tensorflow", LossScaleRule::kTensorFlow, 128, {.raise_after = 1000}},
    RuleNumbers{"torch", LossScaleRule::kTorch, 65536, {.raise_after = 2000}},
    RuleNumbers{"paddle",
                LossScaleRule::kPaddle,
                32768,
                {.lower_factor = 0.8, .raise_after = 1000, .lower_after = 2, .floor = kLossScaleFloor}}};

const RuleNumbers& numbers_of(LossScaleRule rule) {
  return *std::find_if(kRules.begin(), kRules.end(), [rule](const RuleNumbers& n) { return n.rule == rule; });
}

// The members of a LossScale, in its order, as they are saved.
constexpr std::array kNames = {"scale", "clean_steps", "bad_steps", "skips_at_floor"};
static_assert(sizeof(LossScale) == kNames.size() * sizeof(double));

}  // namespace

LossScaleRule loss_scale_rule_from_name(std::string_view name) {
  const auto* const found =
      std::find_if(kRules.begin(), kRules.end(), [name](const RuleNumbers& n) { return n.name == name; });
  if (found != kRules.end()) return found->rule;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "no such rule for the loss scale",
                                                        .expected = "tensorflow, torch or paddle",
                                                        .actual = std::string(name)});
}

double LossScalerOptions::first_scale() const {
  return scale.value_or(numbers_of(rule).scale);
}

LossScaleSteps LossScalerOptions::steps() const {
  LossScaleSteps steps = numbers_of(rule).steps;
  if (raise_after) steps.raise_after = *raise_after;
  // TensorFlow raises the scale in the step that finds the counter full.
  if (rule == LossScaleRule::kTensorFlow) ++steps.raise_after;
  if (lower_after) steps.lower_after = *lower_after;
  // Paddle keeps its factors as 32-bit floats.
  const auto kept = [this](double factor) {
    return rule == LossScaleRule::kPaddle ? static_cast<double>(static_cast<float>(factor)) : factor;
  };
  steps.raise_factor = kept(raise_factor.value_or(steps.raise_factor));
  steps.lower_factor = kept(lower_factor.value_or(steps.lower_factor));
  return steps;
}

void LossScalerOptions::validate() const {
  const auto require = [](bool good, const char* what, const char* expected, const std::string& actual) {
    if (good) return;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = fmt::format("{} is not usable", what), .expected = expected, .actual = actual});
  };
  const double first = first_scale();
  const LossScaleSteps moves = steps();
  require(first >= static_cast<double>(FLT_MIN) && first <= static_cast<double>(FLT_MAX), "the loss scale",
          "a finite number above 0 that a 32-bit float holds", fmt::format("{}", first));
  require(!raise_after || *raise_after >= 1, "the number of steps between two rises of the loss scale", "at least 1",
          std::to_string(raise_after.value_or(0)));
  require(moves.lower_after >= 1, "the number of bad steps after which the loss scale falls", "at least 1",
          std::to_string(moves.lower_after));
  require(std::isfinite(moves.raise_factor) && moves.raise_factor >= 1, "the factor by which the loss scale rises",
          "a finite number, at least 1", fmt::format("{}", moves.raise_factor));
  require(moves.lower_factor > 0 && moves.lower_factor < 1, "the factor by which the loss scale falls", "one in (0, 1)",
          fmt::format("{}", moves.lower_factor));
  require(most_skips_at_floor >= 0, "the number of skipped steps under a loss scale of 1 that ends a run", "at least 0",
          std::to_string(most_skips_at_floor));
}

LossScaler::LossScaler(const LossScalerOptions& options, at::Device device)
    : options_(options), steps_(options.steps()) {
  options_.validate();
  at::Tensor host = at::zeros({static_cast<int64_t>(kNames.size())}, at::kDouble);
  host[0] = options_.first_scale();
  state_ = host.to(device);
  device_ = device_kernels(device);
  if (device_ != nullptr && options_.automatic) {
    found_ = at::empty({1}, at::TensorOptions().dtype(at::kInt).device(device));
  }
}

at::Tensor LossScaler::scale() const {
  return state_[0];
}

at::Tensor LossScaler::clean_steps() const {
  return state_[1];
}

at::Tensor LossScaler::skips_at_floor() const {
  return state_[3];
}

void LossScaler::end_step(const at::Tensor& gradients, StepState& state, bool last) {
  if (device_ == nullptr) return end_step(!options_.automatic || all_finite(gradients), state, last);
  if (options_.automatic) device_->find_non_finite(gradients, found_);
  device_->apply_loss_scale(state_, found_, steps_, state.tensor());
}

void LossScaler::end_step(bool finite, StepState& state, bool last) {
  auto* const scale = static_cast<LossScale*>(state_.data_ptr());
  auto* const fields = state.tensor().data_ptr<double>();
  const bool found = options_.automatic && !finite;
  fields[StepState::kInverseLossScale] = 1.0 / scale->scale;
  fields[StepState::kFoundInf] = found ? 1.0 : 0.0;
  before_ = *scale;
  was_last_ = last;
  const bool any_found = found || found_before_;
  found_before_ = any_found && !last;
  if (options_.automatic && last) *scale = next_loss_scale(*scale, any_found, steps_);
}

void LossScaler::skip_ended_step(StepState& state) {
  state.tensor().data_ptr<double>()[StepState::kFoundInf] = 1.0;
  if (!was_last_) {
    found_before_ = true;
    return;
  }
  if (options_.automatic) *static_cast<LossScale*>(state_.data_ptr()) = next_loss_scale(before_, true, steps_);
}

void LossScaler::save(core::StateWriter& writer) const {
  for (size_t i = 0; i < kNames.size(); ++i) writer.tensor(kNames[i], state_[static_cast<int64_t>(i)]);
}

void LossScaler::load(const core::StateReader& reader) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    at::Tensor member = state_[static_cast<int64_t>(i)];
    if (i < 2 || reader.has(kNames[i])) {
      reader.tensor(kNames[i], member);
    } else {
      member.zero_();
    }
  }
  if (!options_.automatic && options_.scale) scale().fill_(*options_.scale);
}

}  // namespace trainyard::optim
