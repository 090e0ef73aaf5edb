#include "trainyard/train/callbacks/step_accuracies.h"

#include "trainyard/nn/execution/loss.h"

namespace trainyard::train {

double mean_loss(const StepView& view) {
  double sum = 0;
  int64_t count = 0;
  for (const ReplicaView& replica : view.replicas) {
    if (!replica.loss().defined()) continue;
    sum += replica.loss().item().toDouble();
    ++count;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

Accuracies batch_accuracies(const StepView& view) {
  Accuracies sum;
  int64_t samples = 0;
  for (const ReplicaView& replica : view.replicas) {
    const at::Tensor* const labels = replica.batch.tensors.find("labels");
    if (!replica.output().defined() || labels == nullptr) continue;
    sum.top_1 += static_cast<double>(nn::top_k_correct(replica.output(), *labels, 1).item<int64_t>());
    sum.top_5 += static_cast<double>(nn::top_k_correct(replica.output(), *labels, 5).item<int64_t>());
    samples += labels->size(0);
  }
  if (samples == 0) return {};
  return {sum.top_1 / static_cast<double>(samples), sum.top_5 / static_cast<double>(samples)};
}

const Accuracies& StepAccuracies::of(const StepView& view) {
  if (global_step_ != view.global_step) {
    accuracies_ = batch_accuracies(view);
    global_step_ = view.global_step;
  }
  return accuracies_;
}

}  // namespace trainyard::train
