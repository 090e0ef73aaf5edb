#include "trainyard/nn/cpu/plan/byte_step.h"

#include <cmath>

#include "trainyard/nn/cpu/plan/nan_guard.h"
#include "trainyard/nn/graph/op_fields.h"

namespace trainyard::nn::cpu {

UnitActivation activation_of(const PlanBuilder& builder, const Unit& unit) {
  if (unit.activation < 0) return UnitActivation::kNone;
  return unit_activation(std::get<Activation>(builder.graph().nodes[static_cast<size_t>(unit.activation)].op).function);
}

std::string description_behind(const PlanBuilder& builder, const Unit& unit) {
  std::string text;
  if (unit.norm >= 0) text += " + batch norm";
  if (unit.add >= 0) text += " + add";
  if (unit.activation < 0) return text;
  const Node& node = builder.graph().nodes[static_cast<size_t>(unit.activation)];
  const auto function = static_cast<size_t>(std::get<Activation>(node.op).function);
  return text.append(" + ").append(kActivationFunctions.at(function));
}

void note_non_finite(Run& run, const void* values, int64_t a_sample, DataType dtype) {
  const auto samples = static_cast<int64_t>(run.non_finite.size());
  if (std::isfinite(largest_of(values, samples * a_sample, dtype))) return;
  const auto* sample = static_cast<const std::byte*>(values);
  for (uint8_t& non_finite : run.non_finite) {
    if (!std::isfinite(largest_of(sample, a_sample, dtype))) non_finite = 1;
    sample += a_sample * size_of(dtype);
  }
}

}  // namespace trainyard::nn::cpu
