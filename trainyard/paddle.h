// Programs as PaddlePaddle has them, and the ResNet-50 example that runs them (docs/howto/paddle_program.md).
#pragma once

#include "trainyard/frontends/paddle/arguments.h"  // IWYU pragma: export
#include "trainyard/frontends/paddle/executor.h"   // IWYU pragma: export
#include "trainyard/frontends/paddle/program.h"    // IWYU pragma: export
#include "trainyard/trainyard.h"                   // IWYU pragma: export
