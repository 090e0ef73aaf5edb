// Reads the flags of threads and their placement.
#pragma once

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/options/thread_settings.h"

namespace trainyard::frontends {

// Reads the thread flags that core::declare_flags declares. A kmp_ flag is used when it is given, and with --mkl also
// its default. Throws kInvalidArgument for an invalid --kmp_affinity.
ThreadOptions read_thread_options(const core::FlagValues& values);

}  // namespace trainyard::frontends
