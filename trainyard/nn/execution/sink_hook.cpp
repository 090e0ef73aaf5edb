#include "trainyard/nn/execution/sink_hook.h"

#include <memory>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace trainyard::nn {
namespace {

class SinkHook : public torch::autograd::PostAccumulateGradHook {
 public:
  SinkHook(GradientSink& sink, ParameterId id) : sink_(sink), id_(id) {}

  void operator()(const at::Tensor& leaf) override {
    const at::NoGradGuard no_grad;
    // Out of the leaf before the sink may throw: a failed step must not leave its gradient to the next.
    const at::Tensor gradient = std::exchange(leaf.mutable_grad(), at::Tensor());
    sink_.write(id_, gradient);
  }

 private:
  GradientSink& sink_;
  ParameterId id_;
};

}  // namespace

void send_gradients(const at::Tensor& leaf, GradientSink& sink, ParameterId id) {
  torch::autograd::impl::set_post_acc_grad_hooks(leaf, std::make_unique<SinkHook>(sink, id));
}

}  // namespace trainyard::nn
