#include "trainyard/models/flags.h"

namespace trainyard::models {

void declare_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Model";
  table.text("model", "trivial", "the model; `trainyard models` lists them").group(kGroup);
  table
      .integer("num_classes", std::nullopt,
               "outputs of the model; unset: as many as the data name classes (class folders); where labels are "
               "numbers only, and in the dialect of tf_cnn_benchmarks for whole data sets, ImageNet 1001, CIFAR-10 11")
      .bounds(1, kMostClasses)
      .group(kGroup);
  table.real("resnet_base_lr", std::nullopt, "base learning rate of ResNets at a batch of 256, instead of 0.128")
      .group(kGroup);
  table.text("backbone_model_path", std::nullopt, "checkpoint of ssd300's backbone")
      .group(kGroup)
      .later("only ssd300 uses it, which is outside what this project covers for now");
}

}  // namespace trainyard::models
