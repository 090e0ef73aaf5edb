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
  return flags;
}

}  // namespace trainyard::frontends
