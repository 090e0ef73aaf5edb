// Learning rates of PyTorch's, Keras' and Paddle's schedules (tools/golden/schedules.py, paddle_training.py).
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/optim/schedules/learning_rate.h"

namespace trainyard::optim {

// Compares the schedule with all steps of the golden one: relative to `scale`, to 1e-12.
inline void expect_golden(const std::string& name, const Schedule& schedule, double scale = 0.4) {
  const bool paddle = name.starts_with("paddle_");
  std::istringstream text(core::local_file_system().read_file(
      core::join_path(TRAINYARD_SOURCE_DIR, paddle ? "trainyard/optim/testdata/paddle_schedules.txt"
                                                   : "trainyard/optim/testdata/schedules.txt")));
  int steps = 0;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string of;
    int64_t step = 0;
    double rate = 0;
    if (!(words >> of >> step >> rate) || of != name) continue;
    EXPECT_NEAR(schedule(step), rate, 1e-12 * scale) << name << ", step " << step;
    ++steps;
  }
  EXPECT_GT(steps, 15) << name;
}

}  // namespace trainyard::optim
