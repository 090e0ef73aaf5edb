#include "trainyard/data/datasets/dataset.h"

namespace trainyard::data {

std::string_view subset_name(Subset subset) {
  return subset == Subset::kTrain ? "train" : "validation";
}

DatasetRegistry& datasets() {
  static DatasetRegistry registry("data set");
  return registry;
}

}  // namespace trainyard::data
