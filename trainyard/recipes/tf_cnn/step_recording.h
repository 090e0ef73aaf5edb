// --trace_file and --tfprof_file of the benchmark door, for whatever runs its steps.
#pragma once

#include <functional>
#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/recipes/tf_cnn/output/step_log.h"
#include "trainyard/recipes/tf_cnn/prepare.h"
#include "trainyard/train/profile/step_recorder.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::recipes {

struct RecordedRun {
  std::string executor;
  int replicas = 1;
  int64_t images = 0;  // a replica and step
  int64_t warmup_steps = 0;
};

// Adds the callback that the flags ask for: `record` tells the trainer. A trace holds the last but one step of the
// warm-up, as that of tf_cnn_benchmarks; where there are fewer than two (it then writes nothing), the run's first
// step. A profile holds the first ten steps after the warm-up. Files are replaced; their folders are made.
void add_recordings(train::Trainer& trainer, const std::function<void(train::StepRecorder*)>& record,
                    const RecordedRun& recorded, const PreparedRun& run, const Print& print);

}  // namespace trainyard::recipes
TRAINYARD_EXPORT_END
