// Tensorpack's trainers (docs/howto/trainers.md).
#pragma once

#include "trainyard/frontends/tensorpack/trainers.h"  // IWYU pragma: export
#include "trainyard/trainyard.h"                      // IWYU pragma: export
