// Tensorpack's trainers: a configuration says what is trained, without its devices, and the trainer, by Tensorpack's
// names, how devices share the training. Changing the trainer changes one line:
//
//   TrainConfig config;
//   config.model.graph = models::build_model("resnet20", "cifar10", {.num_classes = 10});
//   config.model.make_optimizer = ...;
//   config.model.learning_rate = optim::constant(0.1);
//   config.data = round_robin(source);
//   config.max_epoch = 90;
//   launch_train_with_config(config, SimpleTrainer());
//   launch_train_with_config(config, SyncMultiGPUTrainerReplicated({"gpu:0", "gpu:1"}));
//
// Devices are named as in options/device_names.h. On the CPU each is a replica on a thread of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/train/devices/open_devices.h"
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
  // What becomes of a run that run_directory holds, where the default monitors would write into it and `checkpoint` is
  // not from it. "keep": the training continues it, as AutoResumeTrainConfig does; "back_up": the directory is renamed;
  // "delete": the files of the run are deleted; "new_name": the monitors write into another directory next to it, which
  // is refused with callbacks that save, because they have directories of their own. "ask": a question on the terminal;
  // without one, an error.
  std::string existing_run = "ask";

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
// one that had ended in its stats.json when that was saved. An epoch that ended with the checkpoint counts, too, where
// the run was killed before it had written the epoch's statistics. Without a checkpoint the config stays as it is, with
// a warning when there are statistics: nothing is saved unless a callback does it (train::ModelSaver). An existing_run
// of "ask" becomes "keep", unless weights or another checkpoint are begun with.
struct AutoResumeTrainConfig : TrainConfig {
  // The checkpoint is used when the config has no weights and no checkpoint, its epoch when starting_epoch is also 1,
  // and both always with `always_resume`. Throws kInvalidArgument without a run_directory, kCorruptData for a damaged
  // stats.json.
  explicit AutoResumeTrainConfig(TrainConfig config, bool always_resume = true);
};

// Returns a line of progress on a terminal, and for a training with a cost a summary of learning rate, loss and speed
// once an epoch, with the moving average of the loss. images_per_second counts the images of all devices of all
// processes.
[[nodiscard]] std::vector<std::shared_ptr<train::Callback>> default_callbacks(train::Trainer& trainer,
                                                                              int64_t steps_per_epoch);
// Returns a printer of each epoch's scalars, and monitors that write into the directory, if there is one: TensorBoard's
// event files, metrics.jsonl and stats.json.
[[nodiscard]] std::vector<std::unique_ptr<train::Monitor>> default_monitors(const std::string& run_directory,
                                                                            int64_t start_step);

class TrainerType {
 public:
  virtual ~TrainerType() = default;
  // Makes the trainer of a valid config: its towers and its source. Throws kInvalidArgument for devices that cannot be
  // used, kUnsupported for options that they do not support.
  virtual std::unique_ptr<train::Trainer> make(const TrainConfig& config) const = 0;
  // Disconnects from the other processes after a training, if there are any.
  virtual void leave() const {}
  // Returns true when this process is a server of others, which have ended: nothing is trained here.
  [[nodiscard]] virtual bool serve(const TrainConfig& /*config*/) const { return false; }
};

// One device.
class SimpleTrainer : public TrainerType {
 public:
  explicit SimpleTrainer(std::string device = "cpu:0") : device_(std::move(device)) {}
  std::unique_ptr<train::Trainer> make(const TrainConfig& config) const override;

 private:
  std::string device_;
};

// One copy of the parameters, to which the mean of all devices' gradients is applied.
class SyncMultiGPUTrainerParameterServer : public TrainerType {
 public:
  explicit SyncMultiGPUTrainerParameterServer(std::vector<std::string> devices) : devices_(std::move(devices)) {}
  std::unique_ptr<train::Trainer> make(const TrainConfig& config) const override;

 private:
  std::vector<std::string> devices_;
};

struct ReplicatedOptions {
  bool average = true;  // true: averages the gradients of all devices; false: sums them
  // How gradients are exchanged; the results differ by rounding. "cpu": each device reduces a part of the elements for
  // all. "gpu": each gradient is reduced by one of the devices, which take turns. "hierarchical": within two groups of
  // devices, then between them. "collective": around a ring. "nccl": by NCCL, between GPUs, which have this and
  // "collective", the same there. Empty: cpu on CPUs, nccl on GPUs.
  std::string mode{};
};

// A copy of the parameters on each device, to which it applies the gradients of all.
class SyncMultiGPUTrainerReplicated : public TrainerType {
 public:
  explicit SyncMultiGPUTrainerReplicated(std::vector<std::string> devices, ReplicatedOptions options = {})
      : devices_(std::move(devices)), options_(std::move(options)) {}
  // Throws kUnsupported for a mode that the devices do not have.
  std::unique_ptr<train::Trainer> make(const TrainConfig& config) const override;

 private:
  std::vector<std::string> devices_;
  ReplicatedOptions options_;
};

struct AsyncOptions {
  // Each device's gradients are divided by the number of devices, and so is the regularization in the loss, so that n
  // updates together are as large as one. The learning rate is then that of a synchronous training.
  bool scale_gradient = true;
};

// Each device applies its own gradients to common parameters when they are ready, without waiting for the others. A
// step is one of each device, n updates on n devices.
class AsyncMultiGPUTrainer : public TrainerType {
 public:
  explicit AsyncMultiGPUTrainer(std::vector<std::string> devices, AsyncOptions options = {})
      : devices_(std::move(devices)), options_(options) {}
  std::unique_ptr<train::Trainer> make(const TrainConfig& config) const override;

 private:
  std::vector<std::string> devices_;
  AsyncOptions options_;
};

struct HorovodOptions {
  bool average = true;  // true: applies the mean of the gradients of all processes; false: their sum
  // The 16-bit numbers as which gradients travel between CPUs, "fp16" or "bf16"; they are summed in 32 bits.
  std::string compression = "none";
};

// One process per device, all started by mpirun (on CPUs) or by a launcher that sets RANK and WORLD_SIZE (on GPUs:
// docs/howto/several_devices.md). Each applies the mean, or the sum, of all gradients to its own copy; all start with
// rank 0's variables. Only rank 0 loads checkpoints, which it sends to the others, and has the monitors and the
// callbacks for the chief (Callback::chief_only()).
//
// The config's data make the batches of all processes, of which each uses its own: 2 processes train on the same
// batches as SyncMultiGPUTrainerReplicated with 2 devices.
class HorovodTrainer : public TrainerType {
 public:
  // "cpu", or "gpu": the one of LOCAL_RANK.
  explicit HorovodTrainer(std::string device = "cpu", HorovodOptions options = {})
      : device_(std::move(device)), options_(std::move(options)) {}
  // Collective. Throws kUnsupported when the processes were not started together, and for compression on a GPU,
  // kInvalidArgument for one that is none.
  std::unique_ptr<train::Trainer> make(const TrainConfig& config) const override;
  void leave() const override;

 private:
  std::string device_;
  HorovodOptions options_;
  mutable std::shared_ptr<const train::OpenDevices> devices_;  // devices of the current training
};

// The processes of a training with parameter servers, and which of them this one is: what Tensorpack passes as a
// tf.train.Server. Lists are the same in all processes, "host:port" each.
struct DistributedServer {
  std::vector<std::string> ps_hosts{}, worker_hosts{};
  std::string job_name = "worker";  // "ps"
  int64_t task_index = 0;           // which of its job this process is; worker 0 is the chief
};

// Parameter servers hold the parameters and update them with the mean of the gradients of all workers, in each step
// (docs/howto/several_machines.md). A process whose job is "ps" serves until the workers have ended, and trains
// nothing. The config's data make the batches of all workers, as for HorovodTrainer; checkpoints, monitors and
// callbacks for the chief are worker 0's. On CPUs. The workers of this class get the parameters from the servers in
// each step.
class DistributedTrainerParameterServer : public TrainerType {
 public:
  DistributedTrainerParameterServer(std::vector<std::string> devices, DistributedServer server)
      : devices_(std::move(devices)), server_(std::move(server)) {}
  // Collective. Throws kInvalidArgument for hosts that are none and a task that is not listed, kUnsupported for GPUs
  // and for a build without gRPC, kTimeout when a process does not come.
  std::unique_ptr<train::Trainer> make(const TrainConfig& config) const override;
  void leave() const override;
  bool serve(const TrainConfig& config) const override;

 protected:
  DistributedTrainerParameterServer(std::vector<std::string> devices, DistributedServer server,
                                    std::string variable_update)
      : devices_(std::move(devices)), server_(std::move(server)), variable_update_(std::move(variable_update)) {}

 private:
  std::vector<std::string> devices_;
  DistributedServer server_;
  std::string variable_update_ = "parameter_server";
  mutable std::shared_ptr<const train::OpenDevices> opened_;  // devices of the current training
};

// The same; each device of a worker has a copy of the parameters.
class DistributedTrainerReplicated : public DistributedTrainerParameterServer {
 public:
  DistributedTrainerReplicated(std::vector<std::string> devices, DistributedServer server)
      : DistributedTrainerParameterServer(std::move(devices), std::move(server), "distributed_replicated") {}
};

// Steps that do nothing, for callbacks and monitors only. It makes no tower, and needs neither model nor data.
class NoOpTrainer : public TrainerType {
 public:
  std::unique_ptr<train::Trainer> make(const TrainConfig& config) const override;
};

// Makes the trainer, adds callbacks and monitors, starts from the config's weights or checkpoint, trains, and returns
// the trainer: a train::TowerTrainer for all but NoOpTrainer and servers. Throws as TrainerType::make() does, what the
// training throws, kInvalidArgument for a run that would be overwritten (TrainConfig::existing_run), and kCancelled
// where the answer to the question is to quit.
std::unique_ptr<train::Trainer> launch_train_with_config(const TrainConfig& config, const TrainerType& type);

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
