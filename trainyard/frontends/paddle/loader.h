// Facts about the data of a Loader (executor.h), which checkpoints store.
#pragma once

#include <cstdint>
#include <string>

#include "trainyard/data/augment/transform.h"
#include "trainyard/frontends/model/class_names.h"
#include "trainyard/frontends/paddle/executor.h"

namespace trainyard::frontends::program {

struct LoadedData {
  data::TransformOptions input{};
  ClassNames classes{};
  int64_t class_count = 0;  // 0: images are synthetic
  std::string folder{};
};

// Does what build_dataloader() of executor.h does. `known` are the classes of the training, which number the labels of
// an evaluation.
Loader build_dataloader(const Arguments& args, Mode mode, const train::OpenDevices& device, const ClassNames& known);

}  // namespace trainyard::frontends::program
