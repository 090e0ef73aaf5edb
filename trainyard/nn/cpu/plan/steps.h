// One maker a kind of step: takes a unit's inputs from the builder, sets the value of its last node, adds the step.
#pragma once

#include "trainyard/nn/cpu/plan/plan_builder.h"
#include "trainyard/nn/graph/fusion.h"

namespace trainyard::nn::cpu {

// The maker for the unit: a kernel of ours or oneDNN's where there is one, else ATen's on plain tensors.
void make_step(PlanBuilder& builder, const Unit& unit);

void make_convolution(PlanBuilder& builder, const Unit& unit);
void make_frozen_convolution(PlanBuilder& builder, const Unit& unit);
void make_norm(PlanBuilder& builder, const Unit& unit);
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
// A single node through the reference executor's layers, under autograd of its own.
void make_plain(PlanBuilder& builder, const Unit& unit);

// `id` as a value of the other kind.
ValueId make_conversion(PlanBuilder& builder, ValueId id, Value::Kind kind, int node);

UnitActivation unit_activation(Activation::Function function);

}  // namespace trainyard::nn::cpu
