// An activation that follows nothing it could be fused with, on a map.
#include "trainyard/nn/cpu/plan/nan_guard.h"
#include "trainyard/nn/cpu/plan/single_input_step.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {
namespace {

class ActivationStep : public SingleInputStep {
 public:
  ActivationStep(PlanBuilder& builder, const Unit& unit)
      : SingleInputStep(builder, unit), activation_(unit_activation(std::get<Activation>(node_.op).function)) {
    keeps_input_ = true;
    keeps_bound_ = true;
    least_bound_ = least_bound(activation_);
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kNegligible; }

 private:
  void run_forward(Run& run, BufferId input, BufferId output) override {
    activation_forward({.shape = input_map_,
                        .dtype = dtype_,
                        .activation = activation_,
                        .input = run.at(input),
                        .output = run.at(output)});
  }

  void run_backward(Run& run) override {
    activation_backward({.shape = input_map_,
                         .dtype = dtype_,
                         .activation = activation_,
                         .gradients = {run.at(gradient_)},
                         .input = run.at(kept_input_),
                         .input_gradient = run.at(input_gradient_),
                         .accumulate = accumulate_});
  }

  UnitActivation activation_;
};

}  // namespace

void make_activation(PlanBuilder& builder, const Unit& unit) {
  add_step_of(builder, unit, std::make_unique<ActivationStep>(builder, unit), "activation");
}

}  // namespace trainyard::nn::cpu
