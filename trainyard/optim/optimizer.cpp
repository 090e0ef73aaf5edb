#include "trainyard/optim/optimizer.h"

#include <cmath>
#include <utility>

#include <ATen/ops/full_like.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"

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
}

Optimizer::Optimizer(nn::ParameterSet& parameters, OptimizerOptions options)
    : parameters_(&parameters), options_(options) {
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
