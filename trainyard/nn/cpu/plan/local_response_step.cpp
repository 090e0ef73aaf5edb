#include "trainyard/nn/cpu/plan/single_input_step.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {
namespace {

class LocalResponseStep : public SingleInputStep {
 public:
  LocalResponseStep(PlanBuilder& builder, const Unit& unit)
      : SingleInputStep(builder, unit), op_(std::get<LocalResponseNorm>(node_.op)) {
    keeps_input_ = true;
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCostly; }

 private:
  void run_forward(Run& run, BufferId input, BufferId output) override {
    local_response_forward({.shape = input_map_,
                            .dtype = dtype_,
                            .radius = op_.radius,
                            .bias = static_cast<float>(op_.bias),
                            .alpha = static_cast<float>(op_.alpha),
                            .beta = static_cast<float>(op_.beta),
                            .input = run.at(input),
                            .output = run.at(output)});
  }

  void run_backward(Run& run) override {
    local_response_backward({.shape = input_map_,
                             .dtype = dtype_,
                             .radius = op_.radius,
                             .bias = static_cast<float>(op_.bias),
                             .alpha = static_cast<float>(op_.alpha),
                             .beta = static_cast<float>(op_.beta),
                             .gradient = run.at(gradient_),
                             .input = run.at(kept_input_),
                             .input_gradient = run.at(input_gradient_),
                             .accumulate = accumulate_});
  }

  const LocalResponseNorm& op_;
};

}  // namespace

void make_local_response(PlanBuilder& builder, const Unit& unit) {
  add_step_of(builder, unit, std::make_unique<LocalResponseStep>(builder, unit), "local response norm");
}

}  // namespace trainyard::nn::cpu
