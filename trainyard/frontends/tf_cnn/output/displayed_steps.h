// The steps of a training that are shown and recorded: the first, each multiple of `every`, and the last. They are
// counted over all runs, so an interrupted training shows and records the same steps as an uninterrupted one.
#pragma once

#include <cstdint>

namespace trainyard::frontends {

struct DisplayedSteps {
  int64_t every = 10;
  int64_t last = 0;  // 0: not known

  // `global_step` counts from 1.
  bool shows(int64_t global_step) const { return global_step == 1 || global_step % every == 0 || global_step == last; }
};

}  // namespace trainyard::frontends
