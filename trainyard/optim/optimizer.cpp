#include "trainyard/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ops/full_like.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/pattern.h"
#include "trainyard/core/base/registry.h"

namespace trainyard::optim {

using core::Error;
using core::ErrorCode;

OptimizerRegistry& optimizers() {
  static OptimizerRegistry registry("optimizer");
  return registry;
}

void OptimizerOptions::validate() const {
  const auto require = [](bool good, std::string_view what, std::string_view expected, double actual) {
    if (good) return;
    throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("{} is not usable", what),
                                              .expected = std::string(expected),
                                              .actual = fmt::format("{}", actual)});
  };
  require(momentum >= 0 && momentum <= 1, "momentum", "a number in [0, 1]", momentum);
  require(std::isfinite(weight_decay) && weight_decay >= 0, "weight decay", "a finite number, at least 0",
          weight_decay);
  if (gradient_clip) require(*gradient_clip > 0, "gradient clip", "a number above 0", *gradient_clip);
  for (const ParameterGroup& group : groups) {
    require(std::isfinite(group.rate_factor) && group.rate_factor >= 0,
            fmt::format("the rate factor of the group '{}'", group.pattern), "a finite number, at least 0",
            group.rate_factor);
    if (!group.weight_decay) continue;
    require(std::isfinite(*group.weight_decay) && *group.weight_decay >= 0,
            fmt::format("the weight decay of the group '{}'", group.pattern), "a finite number, at least 0",
            *group.weight_decay);
  }
}

Optimizer::Optimizer(nn::ParameterSet& parameters, OptimizerOptions options)
    : parameters_(&parameters), options_(std::move(options)) {
  options_.validate();
  if (!parameters.allocated()) {
    throw Error(ErrorCode::kInvalidArgument, "an optimizer needs a parameter set that is allocated");
  }
  const at::Tensor values = parameters.values();
  if (values.scalar_type() != at::kFloat && values.scalar_type() != at::kDouble) {
    throw Error(ErrorCode::kUnsupported, {.problem = "optimizers work on float and double parameters",
                                          .actual = at::toString(values.scalar_type())});
  }
  device_ = device_kernels(values.device());
  if (device_ != nullptr) parts_ = segment_part_table(parameters);
  if (device_ != nullptr && !options_.groups.empty()) {
    throw Error(ErrorCode::kUnsupported, {.problem = "groups of parameters are not updated on a device yet",
                                          .expected = "parameters in the host's memory, or no groups"});
  }
  for (const nn::Segment& segment : parameters.segments()) ids_.push_back(*parameters.find(segment.spec.name));
  set_groups();
}

void Optimizer::set_groups() {
  const std::vector<nn::Segment>& segments = parameters_->segments();
  rate_factors_.assign(segments.size(), 1.0);
  weight_decays_.clear();
  for (const nn::Segment& segment : segments) {
    weight_decays_.push_back(segment.spec.decay ? options_.weight_decay : 0.0);
  }
  for (const ParameterGroup& group : options_.groups) {
    bool any = false;
    for (size_t i = 0; i < segments.size(); ++i) {
      if (!core::matches_pattern(segments[i].spec.name, group.pattern)) continue;
      any = true;
      rate_factors_[i] = group.rate_factor;
      weight_decays_[i] = group.weight_decay.value_or(segments[i].spec.decay ? options_.weight_decay : 0.0);
    }
    if (any) continue;
    throw Error(ErrorCode::kNotFound,
                {.problem = fmt::format("no parameter is named as '{}'", group.pattern),
                 .where = "the groups of an optimizer",
                 .expected = fmt::format("a pattern of names as '{}'", segments.empty() ? "" : segments[0].spec.name)});
  }
}

double OptimizerOptions::*Optimizer::field_of(std::string_view name) const {
  const std::vector<std::string> names = hyperparameter_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw core::unknown_name("hyperparameter", name, names);
  }
  return name == "momentum" ? &OptimizerOptions::momentum : &OptimizerOptions::weight_decay;
}

double Optimizer::hyperparameter(std::string_view name) const {
  return options_.*field_of(name);
}

void Optimizer::set_hyperparameter(std::string_view name, double value) {
  OptimizerOptions changed = options_;
  changed.*field_of(name) = value;
  changed.validate();
  options_ = std::move(changed);
  set_groups();
}

at::Tensor Optimizer::add_slot(std::string name, double initial) {
  slots_.push_back({std::move(name), at::full_like(parameters_->values(), initial)});
  return slots_.back().values;
}

at::Tensor Optimizer::slot_view(const Slot& slot, const nn::Segment& segment) const {
  return slot.values.narrow(0, segment.offset, segment.count).view(segment.spec.shape);
}

void Optimizer::save(core::StateWriter& writer) const {
  for (const Slot& slot : slots_) {
    for (const nn::Segment& segment : parameters_->segments()) {
      writer.tensor(segment.spec.name + "." + slot.name, slot_view(slot, segment));
    }
  }
}

void Optimizer::load(const core::StateReader& reader) {
  for (const Slot& slot : slots_) {
    for (const nn::Segment& segment : parameters_->segments()) {
      at::Tensor view = slot_view(slot, segment);
      reader.tensor(segment.spec.name + "." + slot.name, view);
    }
  }
}

}  // namespace trainyard::optim
