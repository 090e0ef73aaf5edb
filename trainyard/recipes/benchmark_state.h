// The checkpoints of a benchmark's train_dir: what they hold beside the trainer (how images become input and the names
// of the labels, for predictions), and how a run goes on from the newest.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainyard/core/stateful.h"
#include "trainyard/recipes/benchmark_settings.h"
#include "trainyard/train/checkpoint_callback.h"
#include "trainyard/train/trainer.h"

namespace trainyard::recipes {

class BenchmarkState : public core::Stateful {
 public:
  BenchmarkState(train::Trainer& trainer, const BenchmarkSettings& settings)
      : trainer_(&trainer),
        trains_(settings.mode != BenchmarkMode::kForwardOnly),
        input_(settings.transform),
        label_names_(settings.label_names()) {}

  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  train::Trainer* trainer_;
  bool trains_;  // a run that does not leaves the input as the model was trained with it
  data::TransformOptions input_;
  std::vector<std::string> label_names_;
};

// Makes train_dir and loads the newest checkpoint there, if there is one, into `state` and its trainer.
void resume(const BenchmarkSettings& settings, BenchmarkState& state);

// Saves into train_dir by the flags, and at the end.
std::shared_ptr<train::CheckpointCallback> make_checkpoint_callback(const core::FlagValues& values,
                                                                    const BenchmarkSettings& settings,
                                                                    std::shared_ptr<const BenchmarkState> state);

// Steps after the warm-up that a run from `first_step` has to do; none is logged.
int64_t remaining_steps(const BenchmarkSettings& settings, int64_t first_step);

// Label names of a checkpoint; empty where it has none.
std::vector<std::string> load_label_names(const core::StateReader& reader);

}  // namespace trainyard::recipes
