// The values of flags that --finetune sets for all data (fine_tuning.h has the others).
#pragma once

#include <optional>

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/options/fine_tune_options.h"
#include "trainyard/frontends/tf_cnn/dialect.h"

namespace trainyard::frontends {

// Returns `given`, and with --finetune also values of flags that were not given. Throws kInvalidArgument for --finetune
// in another mode or dialect, or without weights to start from.
[[nodiscard]] core::FlagValues with_fine_tuning(const core::FlagValues& given, Dialect dialect);

// Returns what the run has to choose, or nothing without --finetune. `given` is what the user gave, `values` is what
// with_fine_tuning() has made of it.
[[nodiscard]] std::optional<FineTuneOptions> read_fine_tuning(const core::FlagValues& given,
                                                              const core::FlagValues& values);

}  // namespace trainyard::frontends
