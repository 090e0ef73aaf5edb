// What a run saves, and where: the requested options, and their flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/core/flags/option_flags.h"
#include "trainyard/train/session/run_directory.h"

namespace trainyard::frontends {

struct SavingOptions {
  std::string train_dir{};  // empty: nothing is saved, unless new_runs_in is set
  // With an empty train_dir, a training makes a new folder MODEL-N in this one. Empty: it does not.
  std::string new_runs_in{};
  // What to do with a run that train_dir contains. Unset: asks on a terminal, and keeps the run otherwise.
  std::optional<train::ExistingRun> existing_run = train::ExistingRun::kKeep;
  int64_t save_model_secs = 0;
  std::optional<int64_t> save_model_steps{};
  bool save_each_epoch = false;  // in a training, in addition to save_model_secs
  int64_t max_ckpts_to_keep = 5;
  // The metric of the best checkpoint: "top_1", "top_5", "loss", "mean_class_accuracy", "none"; or a custom model's
  // metric, "NAME:highest" or "NAME:lowest". read_best_by() (tf_cnn/run_state.h) reads it.
  std::string keep_best = "none";
  bool ignore_damaged_checkpoints = false;
};

// Makes these flags, for core::flags_of(), and --weights, which names the weights that a run starts from.
[[nodiscard]] core::OptionFlags<SavingOptions> saving_flags();

}  // namespace trainyard::frontends
