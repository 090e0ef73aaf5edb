#include "trainyard/frontends/options/loss_options.h"

namespace trainyard::frontends {

core::OptionFlags<LossOptions> loss_flags() {
  using L = LossOptions;
  core::OptionFlags<L> flags("Loss");
  flags.choice("loss_type_to_report", &L::loss_type_to_report, {"base_loss", "total_loss"},
               "total_loss holds the weight decay term");
  flags.choice(
      "class_weights", &L::class_weights, {"none", "balanced"},
      "weight of each class in the loss of a training; balanced: all images / (classes * images of the class), as "
      "scikit-learn computes them, in the mean of PyTorch's CrossEntropyLoss");
  flags.add("label_smoothing", &L::label_smoothing, "part of the target that is spread evenly over all classes")
      .bounds(0)
      .below(1);
  flags.choice("loss", &L::loss, {"softmax", "bce"},
               "of a training; bce: binary cross-entropy of each class by itself, as timm's BinaryCrossEntropy. "
               "Evaluations report softmax cross-entropy with both");
  flags
      .add("bce_target_threshold", &L::bce_target_threshold,
           "of --loss=bce: targets above this, smoothed and mixed ones, are 1 and all others 0; unset: as they are")
      .bounds(0)
      .below(1);
  flags.add("bce_sum", &L::bce_sum, "of --loss=bce: sum over the classes instead of their mean");
  return flags;
}

}  // namespace trainyard::frontends
