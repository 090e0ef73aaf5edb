// The training of NVIDIA DALI's TensorFlow ResNet-N example as a function (docs/howto/train_ctl.md).
#pragma once

#include "trainyard/frontends/train_ctl/train_ctl.h"  // IWYU pragma: export
#include "trainyard/trainyard.h"                      // IWYU pragma: export
