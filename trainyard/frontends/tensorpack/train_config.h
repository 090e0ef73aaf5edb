// The configuration of a training, without its devices, which a trainer selects (trainers.h).
//
//   TrainConfig config;
//   config.model.graph = models::build_model("resnet20", "cifar10", {.num_classes = 10});
//   config.model.make_optimizer = ...;
//   config.model.learning_rate = optim::constant(0.1);
//   config.data = round_robin(source);
//   config.max_epoch = 90;
//   launch_train_with_config(config, SyncMultiGPUTrainerReplicated({"gpu:0", "gpu:1"}));
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/monitors/monitor.h"
#include "trainyard/train/step/tower_trainer.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

// Makes the source of a trainer: each call of next() returns one batch for each of its devices. Devices may get batches
// of different sizes and shapes.
using MakeData = std::function<std::shared_ptr<data::BatchSource>(int devices)>;

struct RoundRobinOptions {
  // true: a source that ends is restarted with its next epoch, as in Tensorpack's QueueInput and FeedInput. false: the
  // training stops there.
  bool repeat = true;
};
// Returns data that distribute the source's batches to the devices in turn (data/sources/round_robin_source.h): nothing
// is split, so that a step's batch is that of the source times the number of devices.
[[nodiscard]] MakeData round_robin(std::shared_ptr<data::BatchSource> source, RoundRobinOptions options = {});

// Makes monitors for a run that begins or continues at a global step.
using MakeMonitors = std::function<std::vector<std::unique_ptr<train::Monitor>>(int64_t start_step)>;
using MakeCallbacks = std::function<std::vector<std::shared_ptr<train::Callback>>()>;

struct TrainConfig {
  // Tower or graph, loss, optimizer, learning rate, numbers. Leave out the options of devices: replicas, accelerators,
  // variable_update, reduction, make_communicators. Trainers without a cost use none of it.
  train::TowerTrainerOptions model{};
  // When the source ends, with a batch for each device, the training ends normally, whatever model.end_of_input is:
  // earlier steps count, after_train() of all callbacks runs, and Trainer::stop_reason() names the reason.
  MakeData data{};
  std::vector<std::shared_ptr<train::Callback>> callbacks{};
  // Added after `callbacks`; empty: default_callbacks().
  MakeCallbacks extra_callbacks{};
  // Empty: default_monitors(run_directory).
  MakeMonitors monitors{};
  std::string run_directory{};  // for the default monitors and AutoResumeTrainConfig; empty: none

  // The start of the training, at most one of these. `weights` is a file of parameters (formats/tensors/tensor_file.h).
  // `checkpoint` is a checkpoint, or a directory of which the newest one is used: it restores everything except the
  // epoch, which is starting_epoch.
  std::string weights{}, checkpoint{};
  int64_t starting_epoch = 1;  // inclusive, as max_epoch is
  // 0: the number of batches in an epoch of the data, whatever the number of devices, if the source knows it
  // (data::SizedSource).
  int64_t steps_per_epoch = 0;
  int64_t max_epoch = 99999;

  void validate() const;  // throws kInvalidArgument
};

// A config that resumes the run in config.run_directory: from its newest checkpoint, and with the epoch after the last
// one in its stats.json.
struct AutoResumeTrainConfig : TrainConfig {
  // They are used when the config specifies nothing else (no weights, no checkpoint; starting_epoch 1), and always with
  // `always_resume`. Throws kInvalidArgument without a run_directory, kCorruptData for a damaged stats.json.
  explicit AutoResumeTrainConfig(TrainConfig config, bool always_resume = true);
};

// Returns a line of progress on a terminal, and for a training with a cost a summary of learning rate, loss and speed
// once an epoch, with the moving average of the loss.
[[nodiscard]] std::vector<std::shared_ptr<train::Callback>> default_callbacks(train::Trainer& trainer,
                                                                              int64_t steps_per_epoch);
// Returns a printer of each epoch's scalars, and monitors that write into the directory, if there is one: TensorBoard's
// event files, metrics.jsonl and stats.json.
[[nodiscard]] std::vector<std::unique_ptr<train::Monitor>> default_monitors(const std::string& run_directory,
                                                                            int64_t start_step);

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
