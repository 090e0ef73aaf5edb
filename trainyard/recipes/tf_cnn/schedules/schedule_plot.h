// A run's schedule as a picture and in words, without the run.
#pragma once

#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/recipes/tf_cnn/schedules/run_schedule.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::recipes {

struct SchedulePlot {
  std::string svg;    // rate, and momentum where it is scheduled, against step and epoch
  std::string lines;  // warm-up, boundaries, minimum and maximum
};

// Reads the schedule at each step of the training, or at a million of them.
SchedulePlot plot_schedule(const std::string& title, const RunSchedule& schedule, const ScheduleFacts& facts);

}  // namespace trainyard::recipes
TRAINYARD_EXPORT_END
