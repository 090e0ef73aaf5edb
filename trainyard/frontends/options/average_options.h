// Averaged weights: what a run is asked for, and its flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/core/flags/option_flags.h"

namespace trainyard::frontends {

// An average of the trained weights; at most one of the two kinds.
struct AverageOptions {
  std::optional<double> ema_decay{};
  bool ema_warmup = false;
  std::optional<double> swa_start_epoch{};
  std::optional<int64_t> average_every{};  // steps; unset: 1 with ema_decay, an epoch with swa_start_epoch
  std::optional<bool>
      averaged_weights{};  // false: evaluations use the last weights; unset: as in the saved run, or true
  std::optional<int64_t> recalibrate_batch_norm{};  // batches; unset: 200 with swa_start_epoch, otherwise none
};

// Makes the flags, for core::flags_of(). Reading also takes --weights_of and --recalibrate_batch_norm, which the flags
// of a run declare.
[[nodiscard]] core::OptionFlags<AverageOptions> average_flags();

// Declares --weights_of, which selects the weights of a checkpoint that a command uses, in this group of the help.
void declare_weights_of_flag(core::FlagTable& table, const std::string& group);
// Returns true when it selects averaged weights, which is the default; unset where it is not given.
[[nodiscard]] std::optional<bool> read_averaged_weights(const core::FlagValues& values);

}  // namespace trainyard::frontends
