#include "trainyard/nn/execution/multibox_loss.h"
#include "trainyard/train/step/graph_tower.h"

namespace trainyard::train {

LossModule classifier_loss(const nn::CrossEntropyOptions& options) {
  options.validate();
  return [options](TowerContext&) -> Loss {
    return [options = options](const LossInput& in) mutable {
      // They move to the device once, with the first batch.
      if (options.class_weights.defined()) {
        options.class_weights = options.class_weights.to(in.outputs.begin()->tensor.device());
      }
      const at::Tensor& labels = in.batch["labels"];
      const at::Tensor* const mixed = in.batch.find("labels_mixed");
      return weighted_sum(in, [&](const at::Tensor& output) {
        if (mixed == nullptr) return nn::softmax_cross_entropy(output, labels, options);
        return nn::mixed_softmax_cross_entropy(output, labels, *mixed, in.batch["label_shares"], options);
      });
    };
  };
}

LossModule label_set_loss() {
  return [](TowerContext&) -> Loss {
    return [](const LossInput& in) {
      const at::Tensor& targets = in.batch["labels"];
      return weighted_sum(in, [&](const at::Tensor& output) { return nn::sigmoid_cross_entropy(output, targets); });
    };
  };
}

LossModule detection_loss() {
  return [](TowerContext&) -> Loss {
    return [](const LossInput& in) {
      return weighted_sum(in, [&](const at::Tensor& output) {
        return nn::multibox_loss(output, in.batch["boxes"], in.batch["classes"], in.batch["num_matched"]);
      });
    };
  };
}

}  // namespace trainyard::train
