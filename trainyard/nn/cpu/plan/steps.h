// One maker for each kind of step. It takes a unit's inputs from the builder, adds the step, and sets the value of the
// unit's last node.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "trainyard/nn/cpu/plan/plan_builder.h"
#include "trainyard/nn/graph/fusion.h"

namespace trainyard::nn::cpu {

// Calls the maker for the unit: with a kernel of ours or oneDNN's if there is one, else make_plain().
void make_step(PlanBuilder& builder, const Unit& unit);

void make_convolution(PlanBuilder& builder, const Unit& unit);
void make_frozen_convolution(PlanBuilder& builder, const Unit& unit);
// Makes one step of the first two or three units if they are an inverted residual block that has a kernel, in plans
// whose variables are constants: a 1x1 convolution (or none), a depthwise 3x3 one and a 1x1 one. Returns how many; zero
// if it made nothing.
size_t make_inverted_residual(PlanBuilder& builder, std::span<const Unit> units);
// Makes one step of the first two units if they are a batch norm in training and the depthwise 3x3 convolution that
// alone reads it. Returns how many; zero if it made nothing.
size_t make_norm_depthwise(PlanBuilder& builder, std::span<const Unit> units);
void make_norm(PlanBuilder& builder, const Unit& unit);
// Makes the batch norm that uses its running statistics: in inference, and in training when its parameters are frozen.
void make_running_norm(PlanBuilder& builder, const Unit& unit);
void make_sum(PlanBuilder& builder, const Unit& unit);
void make_activation(PlanBuilder& builder, const Unit& unit);
void make_pool(PlanBuilder& builder, const Unit& unit);
void make_global_average(PlanBuilder& builder, const Unit& unit);
void make_linear(PlanBuilder& builder, const Unit& unit);
void make_flatten(PlanBuilder& builder, const Unit& unit);
void make_concat(PlanBuilder& builder, const Unit& unit);
void make_channel_pad(PlanBuilder& builder, const Unit& unit);
void make_channel_slice(PlanBuilder& builder, const Unit& unit);
void make_channel_shuffle(PlanBuilder& builder, const Unit& unit);
void make_scale_channels(PlanBuilder& builder, const Unit& unit);
void make_random_scale(PlanBuilder& builder, const Unit& unit);  // dropout, stochastic depth
void make_local_response(PlanBuilder& builder, const Unit& unit);
void make_layer_norm(PlanBuilder& builder, const Unit& unit);
void make_layer_scale(PlanBuilder& builder, const Unit& unit);
void make_attention(PlanBuilder& builder, const Unit& unit);
void make_box_rows(PlanBuilder& builder, const Unit& unit);
// Runs a single node through the reference executor's layers, under autograd of its own.
void make_plain(PlanBuilder& builder, const Unit& unit);

// Does the same in 8 bits, as far as the quantization has scales for it. Returns false, and adds nothing, for a unit
// that computes in float.
bool make_quantized_step(PlanBuilder& builder, const Unit& unit);
void make_quantized_convolution(PlanBuilder& builder, const Unit& unit);
void make_quantized_linear(PlanBuilder& builder, const Unit& unit);
// Make steps whose inputs are bytes. Each returns false when there is no kernel for it.
bool make_byte_sum(PlanBuilder& builder, const Unit& unit);
bool make_byte_activation(PlanBuilder& builder, const Unit& unit);
bool make_byte_pool(PlanBuilder& builder, const Unit& unit);
bool make_byte_global_average(PlanBuilder& builder, const Unit& unit);
bool make_byte_scale_channels(PlanBuilder& builder, const Unit& unit);
bool make_byte_concat(PlanBuilder& builder, const Unit& unit);
bool make_byte_channel_pad(PlanBuilder& builder, const Unit& unit);
bool make_byte_channel_slice(PlanBuilder& builder, const Unit& unit);
bool make_byte_channel_shuffle(PlanBuilder& builder, const Unit& unit);
bool make_byte_flatten(PlanBuilder& builder, const Unit& unit);
bool make_byte_layer_norm(PlanBuilder& builder, const Unit& unit);  // of floats

// Adds a conversion of `from`, floats or bytes, to the new value `to`, the other of the two, and returns `to`.
ValueId make_byte_conversion(PlanBuilder& builder, ValueId from, ValueId to);

// Adds a conversion of `id`, the output of `node`, to the other `kind`, and returns the new value.
ValueId make_conversion(PlanBuilder& builder, ValueId id, Value::Kind kind, int node);

UnitActivation unit_activation(Activation::Function function);

// What a step keeps of its unit: the first node, and what the executor was built with.
class UnitStep : public PlanStep {
 protected:
  UnitStep(PlanBuilder& builder, const Unit& unit)
      : node_(builder.graph().nodes[static_cast<size_t>(unit.head())]), context_(builder.context()) {}

  const Node& node_;
  const BuildContext& context_;
};

// Adds the step that computes a unit, and says that the unit's value is what it makes.
inline void add_step_of(PlanBuilder& builder, const Unit& unit, std::unique_ptr<PlanStep> step, std::string kernel) {
  builder.set_value(unit.tail(), step->output());
  builder.add_step(std::move(step), unit.nodes, std::move(kernel));
}

}  // namespace trainyard::nn::cpu
