// Implements --trace_file, --tfprof_file and --partitioned_graph_file_prefix for the trainers of this front end.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainyard/frontends/tf_cnn/output/step_log.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/train/profile/step_recorder.h"

namespace trainyard::frontends {

struct RecordedRun {
  std::string executor;
  int replicas = 1;
  int64_t images = 0;  // a replica and step
  int64_t warmup_steps = 0;
  std::function<std::vector<nn::ParameterSet*>()>
      parameters;  // parameters of the replicas: one for each, or one for all
};

// Adds the callback that the flags request; `record` starts and ends recording in the trainer. A trace has the last but
// one step of the warm-up, as in tf_cnn_benchmarks, or the run's first step when the warm-up has fewer than two
// (tf_cnn_benchmarks then writes nothing); graphs of devices are written after the same step. A profile has the first
// ten steps after the warm-up, as TensorFlow's ProfileProto and as our JSON (profile_paths()). Files are replaced;
// their folders are made.
void add_recordings(train::Trainer& trainer, const std::function<void(train::StepRecorder*)>& record,
                    const RecordedRun& recorded, const PreparedRun& run, const Print& print);

// The files of the two forms of --tfprof_file: "p" is the ProfileProto and "p.json" the JSON; "p.json" is the JSON and
// "p.pb" the ProfileProto.
struct ProfilePaths {
  std::string proto, json;
};
ProfilePaths profile_paths(const std::string& path);

}  // namespace trainyard::frontends
