#include "trainyard/nn/cpu/plan/byte_step.h"

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

}  // namespace trainyard::nn::cpu
