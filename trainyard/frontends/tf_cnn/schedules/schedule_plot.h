// A run's schedule as a picture, as numbers and in words, without the run.
#pragma once

#include <string>

#include "trainyard/frontends/tf_cnn/schedules/run_schedule.h"

namespace trainyard::frontends {

struct SchedulePlot {
  std::string svg;    // rate, and momentum where it is scheduled, against step and epoch
  std::string lines;  // warm-up, boundaries, minimum and maximum
  // "step,epoch,learning_rate" or "step,epoch,learning_rate,momentum", and a line for each step that was read. Numbers
  // have the digits that give the same double again.
  std::string csv;
};

// Reads the schedule at each step of the training, or at a million of them.
SchedulePlot plot_schedule(const std::string& title, const RunSchedule& schedule, const ScheduleFacts& facts);

struct SchedulePlotPaths {
  std::string picture, numbers;
};
// Returns where --plot_schedule=`path` writes: the numbers beside the picture, with ".csv" in the place of ".svg". A
// path that ends in ".csv" is that of the numbers.
SchedulePlotPaths schedule_plot_paths(const std::string& path);

}  // namespace trainyard::frontends
