// The flags of TfCnnOptions' own members and of its steps: what a run does, how it evaluates, and frozen inference.
// Other members have theirs in frontends/options.
#pragma once

#include "trainyard/core/flags/option_flags.h"
#include "trainyard/frontends/tf_cnn/options.h"

namespace trainyard::frontends {

// Make them, for core::flags_of(): three parts of the help. Among them are --on_nan, --recalibrate_batch_norm,
// --tf_random_seed and --weights_of, which the options of the update, of averages and of the input have.
[[nodiscard]] core::OptionFlags<TfCnnOptions> run_flags();
[[nodiscard]] core::OptionFlags<TfCnnOptions> run_evaluation_flags();
[[nodiscard]] core::OptionFlags<TfCnnOptions> inference_flags();
// Reads all of them, and also --batch_group_size, into the members that they set. `options.dialect` says what an
// --eval_dir that is not given means.
void read_run_flags(const core::FlagValues& values, TfCnnOptions& options);

}  // namespace trainyard::frontends
