#include "trainyard/nn/cuda/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "trainyard/core/cuda/libtorch.h"
#include "trainyard/nn/cuda/device_tensor.h"
#include "trainyard/nn/cuda/held.h"
#include "trainyard/nn/execution/device_loss.h"

namespace trainyard::nn::cuda {
namespace {

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& labels,
                            double smoothing) {
    const at::Tensor z = logits.contiguous(), own_labels = labels.contiguous();
    const at::Tensor losses = at::empty({z.size(0)}, z.options());
    const at::Tensor gradient = logits.requires_grad() ? at::empty_like(z) : at::Tensor();
    cross_entropy(static_cast<int>(z.size(0)), static_cast<int>(z.size(1)), z.const_data_ptr<float>(),
                  own_labels.const_data_ptr<int64_t>(), smoothing, losses.data_ptr<float>(), pointer<float>(gradient),
                  core::cuda::current_stream());
    context->save_for_backward({gradient});
    return losses.mean();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {context->get_saved_variables()[0] * gradients[0], at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor softmax_cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double smoothing) {
  return CrossEntropyFunction::apply(logits, labels, smoothing);
}

namespace {

const core::Registration<DeviceCrossEntropy> kCuda(device_cross_entropies(), "cuda", softmax_cross_entropy);

}  // namespace
}  // namespace trainyard::nn::cuda
