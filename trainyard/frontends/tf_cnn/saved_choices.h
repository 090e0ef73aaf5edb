// Defaults that a run takes from the model that it evaluates, continues or starts from: the model's name, its data set,
// its images and their division, and which of its weights to use. They apply to `trainyard train` and `trainyard eval`;
// tf_cnn_benchmarks' dialect only takes the size of the images and their division.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/data/datasets/dataset.h"
#include "trainyard/frontends/options/image_options.h"
#include "trainyard/nn/graph/ops.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::frontends {

struct PreparedRun;
struct OpenedModel;

struct SavedChoices {
  std::string origin{};  // the checkpoint or file; empty: none, and everything below is unset
  bool continues =
      false;  // true: the run continues from it; false: it is evaluated, or its weights are the initial ones
  std::string model{}, dataset{};                       // empty: not said
  int64_t num_classes = 0;                              // outputs; 0: not said
  nn::Size2d image_size = 0;                            // 0: not said
  bool has_scales = false;                              // of a quantization-aware training that continues
  int64_t found_batch = 0;                              // images a device that --batch_size=auto found; 0: not said
  std::optional<train::SavedFineTuning> fine_tuning{};  // what --finetune chose; unset: the run was begun without it
  std::optional<TrainedInput> input{};
  std::optional<data::Division> division{};  // how the training divided its images; unset: as by default
  std::optional<bool> averaged_weights{};    // which weights the training's evaluations used
};

// Returns the defaults from run.checkpoint in an evaluation, else from the newest checkpoint of the train directory if
// the run continues from it, else from options.weights. With several processes rank 0 reads the files for all. Throws
// kCorruptData for a damaged checkpoint.
[[nodiscard]] SavedChoices read_saved_choices(const PreparedRun& run);

// Sets unset options in run.options from run.saved, and logs them.
void take_saved_choices(PreparedRun& run);

}  // namespace trainyard::frontends
