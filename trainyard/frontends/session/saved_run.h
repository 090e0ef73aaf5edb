// The content of a run's checkpoints in addition to its trainer, so that predictions, evaluations and exports need only
// the checkpoint: how images become input, and the names of the classes.
//
//   const auto state = std::make_shared<SavedRun>(trainer, SavedRunOptions{.identity = ..., .input = ..., ...});
//   train::TrainingSession session(trainer, {.directory = train_dir, .state = state,
//                                            .resume = resume_options(*state, graph)});
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "trainyard/core/base/stateful.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/frontends/model/class_names.h"
#include "trainyard/frontends/options/image_options.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/session/resume.h"

namespace trainyard::frontends {

struct SavedRunOptions {
  train::CheckpointIdentity identity{};
  data::TransformOptions input{};  // options of the images; those that evaluations depend on are saved
  std::string preprocessor{};      // name in data::input_presets() that `input` is derived from; empty: not known
  ClassNames classes{};            // classes of the data; without names if it has none
  std::string data_dir{};          // origin of the data, for errors
  int64_t class_count = 0;         // number of classes of the data, with names or not; 0: no data
  std::optional<data::Division> division{};  // how the data are divided; unset: as by default
  bool label_sets = false;                   // an image has any number of labels
  bool trains = true;                        // false: the run keeps the input with which the model was trained
  bool tells_input = true;                   // false: the caller has logged how the input differs from the checkpoint's
  // Which weights the evaluations of a run with averaging use. Unset: no averaging.
  std::optional<bool> averaged_weights{};
  int64_t batch_size = 0;  // images a device that --batch_size=auto has found; 0: it was given, and is not saved
  std::optional<train::SavedFineTuning> fine_tuning{};  // what --finetune has chosen; unset: it was not given
  std::string optimizer{};  // value of --optimizer, for a run that continues with another one; empty: not saved
};

class SavedRun : public core::Stateful {
 public:
  // The trainer must outlive it.
  SavedRun(train::Trainer& trainer, SavedRunOptions options) : trainer_(&trainer), options_(std::move(options)) {}

  const SavedRunOptions& options() const { return options_; }
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  train::Trainer* trainer_;
  SavedRunOptions options_;
};

// Returns how a run with this state continues. Its check throws kInvalidArgument where the run's data have other
// classes than those that the checkpoint was trained on, and where its weights do not fit images of the graph's size.
// Borrows both. `another_run` is what errors say to do instead; empty: ResumeOptions says it.
[[nodiscard]] train::ResumeOptions resume_options(const SavedRun& state, const nn::Graph& graph,
                                                  const std::string& another_run = "");

// Return the input of a saved run as text for the other ranks of a training, and the input in such a text, without its
// origin: rank 0 says how it differs. The second throws kCorruptData for a text that ends too early.
[[nodiscard]] std::string encode_trained_input(const TrainedInput& trained);
[[nodiscard]] TrainedInput decode_trained_input(std::string_view text);

}  // namespace trainyard::frontends
