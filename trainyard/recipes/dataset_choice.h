// Which data set a run is on.
#pragma once

#include "trainyard/core/flags.h"

namespace trainyard::recipes {

// data_name, else the first of imagenet, cifar10, librispeech, coco, shapes that is a part of data_dir; without either,
// "imagenet" (of synthetic images). Throws kInvalidArgument with upstream's texts, kUnsupported for librispeech and
// coco.
std::string benchmark_dataset_name(const core::FlagValues& values);

}  // namespace trainyard::recipes
