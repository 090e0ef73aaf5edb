// The measurements of train_ctl() over an epoch.
#pragma once

#include <cstdint>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

// Means over the steps of an epoch.
struct CtlMeans {
  int64_t steps = 0;
  double loss = 0, top_1 = 0, top_5 = 0;  // loss: with the regularization
};

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
