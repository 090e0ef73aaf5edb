#include "trainyard/data/dataset.h"

namespace trainyard::data {

std::string_view subset_name(Subset subset) {
  return subset == Subset::kTrain ? "train" : "validation";
}

DatasetRegistry& datasets() {
  static DatasetRegistry registry("data set");
  return registry;
}

std::string guess_dataset_name(std::string_view directory) {
  for (std::string_view name : {"imagenet", "cifar10", "shapes"}) {
    if (directory.find(name) != std::string_view::npos) return std::string(name);
  }
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    "Could not identify name of dataset. Please specify with --data_name option.");
}

}  // namespace trainyard::data
