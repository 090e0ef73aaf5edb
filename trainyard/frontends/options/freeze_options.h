// Parameters that do not train, for the whole run or in some of its epochs. What a run is asked for, and its flags.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/flags/flags.h"

namespace trainyard::frontends {

// In place of a pattern: all parameters but those of the layers that give the model's outputs.
inline constexpr const char* kBackbone = "backbone";

// Epochs are counted from the training's begin; fractions are parts of an epoch.
struct FreezeEpochs {
  std::string pattern{};  // of names, or kBackbone
  double begin = 0;
  std::optional<double> end{};  // unset: to the end of the training
};

struct FreezeOptions {
  std::vector<std::string> patterns{};  // of names, or kBackbone: frozen for the whole run
  std::vector<FreezeEpochs> epochs{};

  [[nodiscard]] bool empty() const { return patterns.empty() && epochs.empty(); }
};

// Declares --freeze, --freeze_until and --freeze_after, in this group of the help.
void declare_freeze_flags(core::FlagTable& table, const std::string& group);
// Reads them. Throws kInvalidArgument for a part that is not PATTERN:EPOCH, or an epoch out of range.
[[nodiscard]] FreezeOptions read_freeze_options(const core::FlagValues& values);

}  // namespace trainyard::frontends
