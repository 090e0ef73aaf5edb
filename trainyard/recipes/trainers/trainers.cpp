#include "trainyard/recipes/trainers/trainers.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/data/sources/sized_source.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/recipes/shared/device_names.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/weights.h"
#include "trainyard/train/loop/run_devices.h"

namespace trainyard::recipes {

using core::Error;
using core::ErrorCode;

namespace {

// Loads weights behind what the model's own `start` does.
std::function<void(nn::ParameterSet&)> start_with_weights(const TrainConfig& config) {
  if (config.weights.empty()) return config.model.start;
  const int64_t classes = config.model.tower ? 0 : config.model.graph.output_shape()[0];
  return [path = config.weights, classes, own = config.model.start](nn::ParameterSet& parameters) {
    if (own) own(parameters);
    const train::LoadedWeights loaded = train::load_weights(formats::open_tensor_file(path), parameters, classes);
    if (loaded.head.empty()) return;
    core::log::warning("{} is for {} classes: the head is new, for {} ({})", path, loaded.file_classes, classes,
                       fmt::join(loaded.head, ", "));
  };
}

std::unique_ptr<train::Trainer> make_on_devices(const TrainConfig& config, const std::vector<std::string>& devices,
                                                const std::string& variable_update,
                                                std::optional<parallel::GradientReduction> reduction) {
  if (!config.data) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a training with a model needs data",
                                              .where = "TrainConfig::data",
                                              .remedy = "set it to dealt(source), or to a function of your own"});
  }
  const NamedDevices named = read_device_names(devices);
  const train::RunDevices opened = train::open_devices(named.request);
  train::SingleCostOptions options = config.model;
  options.replicas = named.replicas;
  options.accelerators = opened.accelerators;
  options.make_communicators = opened.communicators();
  options.variable_update = variable_update;
  options.reduction = reduction;
  options.start = start_with_weights(config);
  const std::shared_ptr<void> on_devices = opened.use();
  return std::make_unique<train::SingleCostTrainer>(std::move(options), config.data(named.replicas));
}

void require_mode(const std::string& mode, const std::vector<std::string>& devices) {
  constexpr std::array kModes{"", "nccl", "hierarchical", "cpu", "gpu"};
  if (std::find(kModes.begin(), kModes.end(), mode) == kModes.end()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "no such mode of exchanging gradients",
                                              .expected = "nccl, hierarchical, cpu, gpu, or none",
                                              .actual = mode});
  }
  const char* const there = read_device_names(devices).request.gpus.empty() ? "cpu" : "nccl";
  if (mode.empty() || mode == there) return;
  throw Error(ErrorCode::kUnsupported, {.problem = "gradients are not exchanged in this mode on these devices yet",
                                        .where = fmt::format("[{}]", fmt::join(devices, ", ")),
                                        .expected = there,
                                        .actual = mode,
                                        .remedy = "leave the mode out: the result is the same up to rounding"});
}

class IdleTrainer : public train::Trainer {
 protected:
  void run_step(train::StepView&) override {}
};

int64_t steps_of_epoch(const TrainConfig& config, train::Trainer& trainer) {
  if (config.steps_per_epoch > 0) return config.steps_per_epoch;
  auto* const single_cost = dynamic_cast<train::SingleCostTrainer*>(&trainer);
  const auto* const sized =
      single_cost == nullptr ? nullptr : dynamic_cast<const data::SizedSource*>(&single_cost->source());
  const int64_t batches = sized == nullptr ? 0 : sized->batches_per_epoch();
  if (batches > 0) return batches;
  throw Error(ErrorCode::kInvalidArgument, {.problem = "the data do not say how many batches they have in an epoch",
                                            .where = "TrainConfig::steps_per_epoch",
                                            .remedy = "set it to the number of steps"});
}

}  // namespace

std::unique_ptr<train::Trainer> SimpleTrainer::make(const TrainConfig& config) const {
  return make_on_devices(config, {device_}, "parameter_server", std::nullopt);
}

std::unique_ptr<train::Trainer> SyncMultiGPUTrainerParameterServer::make(const TrainConfig& config) const {
  return make_on_devices(config, devices_, "parameter_server", parallel::GradientReduction::kMean);
}

std::unique_ptr<train::Trainer> SyncMultiGPUTrainerReplicated::make(const TrainConfig& config) const {
  require_mode(options_.mode, devices_);
  return make_on_devices(config, devices_, "replicated",
                         options_.average ? parallel::GradientReduction::kMean : parallel::GradientReduction::kSum);
}

std::unique_ptr<train::Trainer> AsyncMultiGPUTrainer::make(const TrainConfig& config) const {
  return make_on_devices(config, devices_, "asynchronous", std::nullopt);
}

std::unique_ptr<train::Trainer> HorovodTrainer::make(const TrainConfig& /*config*/) const {
  throw Error(ErrorCode::kUnsupported,
              {.problem = "processes of a program of one's own do not train together yet",
               .where = "HorovodTrainer",
               .remedy = "train in one process with SyncMultiGPUTrainerReplicated, or on GPUs with `trainyard train "
                         "--variable_update=horovod`"});
}

std::unique_ptr<train::Trainer> NoOpTrainer::make(const TrainConfig& /*config*/) const {
  return std::make_unique<IdleTrainer>();
}

std::unique_ptr<train::Trainer> launch_train_with_config(const TrainConfig& config, const TrainerType& type) {
  config.validate();
  std::unique_ptr<train::Trainer> trainer = type.make(config);
  const int64_t steps = steps_of_epoch(config, *trainer);
  for (const auto& callback : config.callbacks) trainer->add(callback);
  for (const auto& callback : config.extra_callbacks ? config.extra_callbacks() : default_callbacks(*trainer, steps)) {
    trainer->add(callback);
  }
  // Behind the callbacks, whose state is in it, too.
  if (!config.checkpoint.empty()) train::load_checkpoint(train::find_checkpoint(config.checkpoint), nullptr, *trainer);
  const int64_t start = trainer->global_step();
  for (auto& monitor : config.monitors ? config.monitors(start) : default_monitors(config.run_directory, start)) {
    trainer->monitors().add(std::move(monitor));
  }
  trainer->train({.steps_per_epoch = steps, .starting_epoch = config.starting_epoch, .max_epoch = config.max_epoch});
  trainer->monitors().flush();
  return trainer;
}

}  // namespace trainyard::recipes
