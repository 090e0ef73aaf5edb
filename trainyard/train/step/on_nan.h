// What a training does when a step's loss or gradient is not finite (--on_nan).
#pragma once

#include <cstdint>
#include <string_view>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

enum class OnNan {
  kStop,  // the step ends with an error that names the first layer whose numbers were not finite; nothing is updated
  kSkip,  // the step is skipped: parameters, slots and statistics are unchanged; kMostSkips such steps in a row end the
          // run
  kIgnore,  // the update is applied; the first such step is warned about
};

// Returns the choice called "stop", "skip" or "ignore". Throws kInvalidArgument for another name.
[[nodiscard]] OnNan on_nan_from_name(std::string_view name);

inline constexpr int64_t kMostSkips = 100;

// Steps between two checks on an accelerator, each of which waits for it. Only stop and ignore are implemented there.
inline constexpr int64_t kStepsBetweenDeviceLooks = 100;

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
