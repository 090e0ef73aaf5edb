#include "trainyard/train/step/graph_tower.h"

namespace trainyard::train {

LossModule classifier_loss(const nn::CrossEntropyOptions& options) {
  options.validate();
  return [options](TowerContext&) -> Loss {
    return [options](const LossInput& in) {
      const at::Tensor& labels = in.batch["labels"];
      const at::Tensor* const mixed = in.batch.find("labels_mixed");
      return weighted_sum(in, [&](const at::Tensor& output) {
        if (mixed == nullptr) return nn::softmax_cross_entropy(output, labels, options);
        return nn::mixed_softmax_cross_entropy(output, labels, *mixed, in.batch["label_shares"], options);
      });
    };
  };
}

}  // namespace trainyard::train
