// What a run takes from the model that it evaluates, continues or starts from, where its options do not say it: the
// model's name, its data set, its images, and which of its weights count. `trainyard train` and `trainyard eval` do;
// tf_cnn_benchmarks' dialect takes the size of the images alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/frontends/options/image_options.h"
#include "trainyard/nn/graph/ops.h"

namespace trainyard::frontends {

struct PreparedRun;
struct OpenedModel;

struct SavedChoices {
  std::string origin{};            // the checkpoint or file; empty: there is none, and nothing is said below
  bool continues = false;          // the run continues from it; false: it is evaluated, or its weights are a start
  std::string model{}, dataset{};  // empty: not said
  int64_t num_classes = 0;         // outputs; 0: not said
  nn::Size2d image_size = 0;       // 0: not said
  std::optional<TrainedInput> input{};
  std::optional<bool> averaged_weights{};  // which weights the training's evaluations took
};

// Returns what run.checkpoint says of an evaluation, else what the newest checkpoint of the train directory says where
// the run continues from it, else what options.weights says. Of several processes rank 0 looks into files, for all.
// Throws kCorruptData for a damaged checkpoint.
[[nodiscard]] SavedChoices read_saved_choices(const PreparedRun& run);

// Puts into run.options what run.saved says and they do not, and says in the log what was taken.
void take_saved_choices(PreparedRun& run);

}  // namespace trainyard::frontends
