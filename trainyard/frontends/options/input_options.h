// Reads the flags of input, which data/flags.h declares.
#pragma once

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/options/input_settings.h"

namespace trainyard::frontends {

// Reads the flags that data::declare_input_flags declares, and tf_random_seed. Throws kInvalidArgument.
InputOptions read_input_options(const core::FlagValues& values);

}  // namespace trainyard::frontends
