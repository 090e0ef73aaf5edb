// Describes a run's schedule as an image, as numbers and as text, without the run.
#pragma once

#include <string>

#include "trainyard/frontends/tf_cnn/schedules/run_schedule.h"

namespace trainyard::frontends {

struct SchedulePlot {
  std::string svg;    // rate, and momentum if it is scheduled, over step and epoch
  std::string lines;  // warm-up, boundaries, minimum and maximum
  // "step,epoch,learning_rate" or "step,epoch,learning_rate,momentum", and a line for each evaluated step. Numbers have
  // as many digits as are needed to restore the double.
  std::string csv;
};

// Evaluates the schedule at each step of the training, or at a million of them.
SchedulePlot plot_schedule(const std::string& title, const RunSchedule& schedule, const ScheduleFacts& facts);

struct SchedulePlotPaths {
  std::string picture, numbers;
};
// Returns the files of --plot_schedule=`path`: the numbers are next to the image, with ".csv" instead of ".svg". A path
// that ends in ".csv" is that of the numbers.
SchedulePlotPaths schedule_plot_paths(const std::string& path);

}  // namespace trainyard::frontends
