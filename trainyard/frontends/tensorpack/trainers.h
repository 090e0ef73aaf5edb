// How devices share a training, by Tensorpack's names. Changing the trainer changes one line:
//
//   launch_train_with_config(config, SimpleTrainer());
//   launch_train_with_config(config, SyncMultiGPUTrainerReplicated({"gpu:0", "gpu:1"}));
//
// Devices are named as in options/device_names.h. On the CPU each is a replica on a thread of its own.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/frontends/tensorpack/train_config.h"
#include "trainyard/train/devices/open_devices.h"
#include "trainyard/train/loop/trainer.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

class TrainerType {
 public:
  virtual ~TrainerType() = default;
  // Makes the trainer of a valid config: its towers and its source. Throws kInvalidArgument for devices that cannot be
  // used, kUnsupported for options that they do not support.
  virtual std::unique_ptr<train::Trainer> make(const TrainConfig& config) const = 0;
  // Disconnects from the other processes after a training, if there are any.
  virtual void leave() const {}
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
  // How gradients are exchanged. Empty: cpu on CPUs, nccl on GPUs, which are the supported ones.
  std::string mode{};  // "nccl", "hierarchical", "cpu", "gpu"
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

// One process per device, all started by mpirun (on CPUs) or by a launcher that sets RANK and WORLD_SIZE (on GPUs:
// docs/howto/several_devices.md). Each applies the mean of all gradients to its own copy; all start with rank 0's
// variables. Only rank 0 loads checkpoints, which it sends to the others, and has the monitors and the callbacks for
// the chief (Callback::chief_only()).
//
// The config's data make the batches of all processes, of which each uses its own: 2 processes train on the same
// batches as SyncMultiGPUTrainerReplicated with 2 devices.
class HorovodTrainer : public TrainerType {
 public:
  // "cpu", or "gpu": the one of LOCAL_RANK.
  explicit HorovodTrainer(std::string device = "cpu") : device_(std::move(device)) {}
  // Collective. Throws kUnsupported when the processes were not started together.
  std::unique_ptr<train::Trainer> make(const TrainConfig& config) const override;
  void leave() const override;

 private:
  std::string device_;
  mutable std::shared_ptr<const train::OpenDevices> devices_;  // devices of the current training
};

// Steps that do nothing, for callbacks and monitors only. It makes no tower, and needs neither model nor data.
class NoOpTrainer : public TrainerType {
 public:
  std::unique_ptr<train::Trainer> make(const TrainConfig& config) const override;
};

// Makes the trainer, adds callbacks and monitors, starts from the config's weights or checkpoint, trains, and returns
// the trainer: a train::TowerTrainer for all but NoOpTrainer. Throws as TrainerType::make() does, and what the training
// throws.
std::unique_ptr<train::Trainer> launch_train_with_config(const TrainConfig& config, const TrainerType& type);

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
