// The program `trainyard` with models, optimizers and data sets of the caller (examples/own_model.cpp).
#pragma once

#include "trainyard/cli/program.h"                // IWYU pragma: export
#include "trainyard/core/memory/cpu_allocator.h"  // IWYU pragma: export
#include "trainyard/core/threads/stop_token.h"    // IWYU pragma: export
#include "trainyard/models.h"                     // IWYU pragma: export
