// Which steps of a training are shown and recorded: the first, each multiple of `every`, and the last. Over all its
// runs, so a training that was interrupted shows and records the same steps as one that was not.
#pragma once

#include <cstdint>

namespace trainyard::frontends {

struct DisplayedSteps {
  int64_t every = 10;
  int64_t last = 0;  // 0: it is not known

  // `global_step` counts from 1.
  bool shows(int64_t global_step) const { return global_step == 1 || global_step % every == 0 || global_step == last; }
};

}  // namespace trainyard::frontends
