// Callbacks that save when they are triggered, with the names of Tensorpack. Add them last, so that other callbacks
// save their state after the epoch. Use a CheckpointCallback to save every so many seconds or at the end of a run.
//
//   trainer.add(std::make_shared<ModelSaver>(CheckpointStore("out/run1", 10)));
//   trainer.add(std::make_shared<MaxSaver>("val/top_1_accuracy", CheckpointStore("out/run1")));   // out/run1/best
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/train/checkpoint/best_checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/loop/callback.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct SaverOptions {
  CheckpointIdentity identity{};
  std::shared_ptr<const core::Stateful> state{};  // object to save; null: the trainer
};

// Saves a checkpoint after each epoch, or at the times of a PeriodicTrigger. The store decides how many are kept.
class ModelSaver : public Callback {
 public:
  explicit ModelSaver(CheckpointStore store, SaverOptions options = {});
  std::string name() const override { return "model_saver"; }
  bool chief_only() const override { return true; }
  void trigger(Trainer& trainer) override;

 private:
  CheckpointStore store_;
  SaverOptions options_;
};

// Keeps the checkpoint with the best value of a monitors' statistic, as "best" in the store's directory, over all runs
// there (BestKeeper). Add it after the callback that writes the statistic. Does nothing when the statistic has no new
// value, and warns once when it has never had one. Two of these callbacks need two directories.
class BestSaver : public Callback {
 public:
  std::string name() const override { return name_; }
  bool chief_only() const override { return true; }
  // Throws what BestKeeper's constructor throws.
  void setup(Trainer& trainer) override;
  void trigger(Trainer& trainer) override;

  // Returns the best of all runs, or nothing before the first.
  [[nodiscard]] std::optional<BestCheckpoint> best() const;

 protected:
  BestSaver(std::string name, BestBy by, CheckpointStore store, SaverOptions options);

 private:
  std::string name_;
  BestBy by_;
  CheckpointStore store_;
  SaverOptions options_;
  std::optional<BestKeeper> keeper_;
  std::optional<int64_t> offered_;  // global step of the last value
  bool warned_ = false;
};

// Keeps the checkpoint with the lowest value of a statistic, a name of MonitorSet::history(): "val/loss".
class MinSaver : public BestSaver {
 public:
  MinSaver(const std::string& statistic, CheckpointStore store, SaverOptions options = {});
};

// Keeps the checkpoint with the highest value.
class MaxSaver : public BestSaver {
 public:
  MaxSaver(const std::string& statistic, CheckpointStore store, SaverOptions options = {});
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
