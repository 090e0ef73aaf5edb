#include "trainyard/nn/execution/multibox_loss.h"
#include "trainyard/train/step/graph_tower.h"

namespace trainyard::train {
namespace {

// Returns the weighted sum of one loss or the other over the outputs, as a batch has single or mixed labels.
template <typename Options>
LossModule loss_of_labels(const Options& options,
                          at::Tensor (*single)(const at::Tensor&, const at::Tensor&, const Options&),
                          at::Tensor (*mixed)(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                              const at::Tensor&, const Options&)) {
  options.validate();
  return [options, single, mixed](TowerContext&) -> Loss {
    return [options = options, single, mixed](const LossInput& in) mutable {
      // They move to the device once, with the first batch.
      if (options.class_weights.defined()) {
        options.class_weights = options.class_weights.to(in.outputs.begin()->tensor.device());
      }
      const at::Tensor& labels = in.batch["labels"];
      const at::Tensor* const others = in.batch.find("labels_mixed");
      return weighted_sum(in, [&](const at::Tensor& output) {
        if (others == nullptr) return single(output, labels, options);
        return mixed(output, labels, *others, in.batch["label_shares"], options);
      });
    };
  };
}

}  // namespace

LossModule classifier_loss(const nn::CrossEntropyOptions& options) {
  return loss_of_labels(options, nn::softmax_cross_entropy, nn::mixed_softmax_cross_entropy);
}

LossModule binary_classifier_loss(const nn::BinaryCrossEntropyOptions& options) {
  return loss_of_labels(options, nn::binary_cross_entropy, nn::mixed_binary_cross_entropy);
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
