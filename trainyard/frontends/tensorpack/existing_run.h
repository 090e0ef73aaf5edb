// What becomes of a run that a config's directory holds, and how a checkpoint tells whether its epoch had ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/frontends/tensorpack/trainers.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::frontends {

// Applies TrainConfig::existing_run, and returns the config of the training. Collective over `ranks`, null where this
// process is alone: rank 0 looks and asks, and all get its directory, checkpoint and starting epoch. Throws
// kInvalidArgument where the run would be overwritten and there is no terminal to ask on, kCancelled where the answer
// is to quit, and what train::settle_existing_run() throws.
[[nodiscard]] TrainConfig settle_run(TrainConfig config, parallel::ProcessGroup* ranks);

// Saves the number of steps of an epoch with each checkpoint, for ended_epoch().
class EpochLength : public train::Callback {
 public:
  explicit EpochLength(int64_t steps) : steps_(steps) {}
  std::string name() const override;
  void save(core::StateWriter& writer) const override;
  // Keeps the steps of this run.
  void load(const core::StateReader& reader) override;

 private:
  int64_t steps_;
};

// Returns the epoch at whose end the checkpoint was saved. Nothing: it was saved within an epoch, or without an
// EpochLength.
[[nodiscard]] std::optional<int64_t> ended_epoch(const train::CheckpointInfo& checkpoint);

}  // namespace trainyard::frontends
