#include "trainyard/frontends/tensorpack/trainers.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/sources/described_source.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/frontends/options/cluster_settings.h"
#include "trainyard/frontends/options/device_names.h"
#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/frontends/tensorpack/existing_run.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/parallel/collectives/all_reduce_options.h"
#include "trainyard/parallel/process_group/launcher_claims.h"
#include "trainyard/parallel/servers/parameter_server.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/tensorflow_weights.h"
#include "trainyard/train/devices/open_devices.h"
#include "trainyard/train/session/rank_batches.h"
#include "trainyard/train/session/training_session.h"

namespace trainyard::frontends {

using core::Error, core::ErrorCode;

namespace {

// Loads weights behind what the model's own `start` does.
std::function<void(nn::ParameterSet&)> start_with_weights(const TrainConfig& config) {
  if (config.weights.empty()) return config.model.start;
  const int64_t classes = config.model.tower ? 0 : config.model.graph.output_shape()[0];
  return [path = config.weights, classes, own = config.model.start,
          graph = config.model.graph](nn::ParameterSet& parameters) {
    if (own) own(parameters);
    const formats::TensorFile file = train::named_for_graph(formats::open_tensor_file(path), graph);
    const train::LoadedWeights loaded = train::load_weights(file, parameters, classes);
    if (loaded.head.empty()) return;
    core::log::warning("{} is for {} classes: the head is new, for {} ({})", path, loaded.file_classes, classes,
                       fmt::join(loaded.head, ", "));
  };
}

std::unique_ptr<train::Trainer> make_on(const train::OpenDevices& opened, const TrainConfig& config,
                                        const std::string& variable_update,
                                        std::optional<parallel::GradientReduction> reduction,
                                        const parallel::GradientPacking& packing = {}) {
  if (!config.data) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a training with a model needs data",
                                              .where = "TrainConfig::data",
                                              .remedy = "set it to round_robin(source), or to a function of your own"});
  }
  train::TowerTrainerOptions options = config.model;
  options.devices.replicas = opened.replicas;
  options.devices.accelerators = opened.accelerators;
  options.devices.processes = opened.processes;
  options.devices.servers = opened.servers;
  options.devices.make_communicators = opened.make_communicators;
  options.devices.make_gradient_communicators = opened.make_gradient_communicators;
  options.exchange.variable_update = variable_update;
  options.exchange.reduction = reduction;
  if (!packing.is_default()) options.exchange.packing = packing;
  options.start = start_with_weights(config);
  options.end_of_input = train::EndOfInput::kStop;
  const nn::AcceleratorScope on_devices = opened.use();
  std::shared_ptr<data::BatchSource> source = config.data(opened.replicas * opened.ranks());
  source = train::batches_of_rank(source, opened);
  return std::make_unique<train::TowerTrainer>(std::move(options), std::move(source));
}

std::unique_ptr<train::Trainer> make_on_devices(const TrainConfig& config, const std::vector<std::string>& devices,
                                                const std::string& variable_update,
                                                std::optional<parallel::GradientReduction> reduction) {
  parallel::refuse_copies("train alone", "use HorovodTrainer");
  return make_on(open_named_devices(read_device_names(devices)), config, variable_update, reduction);
}

// Returns the algorithm of a mode on these devices. Throws kInvalidArgument for a mode that is none, kUnsupported for
// one that the devices do not have.
parallel::AllReduceOptions algorithm_of(const std::string& mode, const std::vector<std::string>& devices) {
  constexpr std::array kModes{"", "nccl", "hierarchical", "cpu", "gpu", "collective"};
  if (std::find(kModes.begin(), kModes.end(), mode) == kModes.end()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "no such mode of exchanging gradients",
                                              .expected = "nccl, hierarchical, cpu, gpu, collective, or none",
                                              .actual = mode});
  }
  const bool on_cpus = read_device_names(devices).gpu_indices.empty();
  const bool there = mode.empty() || mode == "collective" || (mode != "nccl") == on_cpus;
  if (!there) {
    throw Error(ErrorCode::kUnsupported,
                {.problem = "gradients are not exchanged in this mode on these devices",
                 .where = fmt::format("[{}]", fmt::join(devices, ", ")),
                 .expected = on_cpus ? "cpu, gpu, hierarchical or collective" : "nccl or collective",
                 .actual = mode,
                 .remedy = "leave the mode out: the result is the same up to rounding"});
  }
  if (!on_cpus) return {};
  if (mode == "hierarchical") return {.hierarchical_copy = true};
  return {.spec = mode == "gpu" ? "psgpu" : mode == "collective" ? "collective" : ""};
}

parallel::GradientReduction reduction_of(bool average) {
  return average ? parallel::GradientReduction::kMean : parallel::GradientReduction::kSum;
}

class IdleTrainer : public train::Trainer {
 protected:
  void run_step(train::StepView&) override {}
};

int64_t steps_of_epoch(const TrainConfig& config, train::Trainer& trainer) {
  if (config.steps_per_epoch > 0) return config.steps_per_epoch;
  auto* const tower_trainer = dynamic_cast<train::TowerTrainer*>(&trainer);
  const int64_t batches = tower_trainer == nullptr ? 0 : data::batches_in_epoch(tower_trainer->source());
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
  const parallel::AllReduceOptions algorithm = algorithm_of(options_.mode, devices_);
  parallel::refuse_copies("train alone", "use HorovodTrainer");
  train::OpenDevices opened = open_named_devices(read_device_names(devices_));
  opened.choose_communicators(algorithm);
  // Gradients by themselves take turns between the devices that reduce them.
  return make_on(opened, config, "replicated", reduction_of(options_.average),
                 {.separate = options_.mode == "gpu" || options_.mode == "hierarchical"});
}

std::unique_ptr<train::Trainer> AsyncMultiGPUTrainer::make(const TrainConfig& config) const {
  return make_on_devices(config, devices_, "asynchronous", reduction_of(options_.scale_gradient));
}

std::unique_ptr<train::Trainer> HorovodTrainer::make(const TrainConfig& config) const {
  if (device_ != "cpu" && device_ != "gpu") {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "no such device of a process", .expected = "cpu or gpu", .actual = device_});
  }
  constexpr std::array kCompressions{"none", "fp16", "bf16"};
  if (std::find(kCompressions.begin(), kCompressions.end(), options_.compression) == kCompressions.end()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "no such compression of gradients",
                                              .expected = "none, fp16 or bf16",
                                              .actual = options_.compression});
  }
  DeviceOptions options;
  options.gpu = device_ == "gpu";
  options.variable_update = "horovod";
  options.horovod_compression = options_.compression;
  devices_ = std::make_shared<train::OpenDevices>(open_device(options, {}));
  return make_on(*devices_, config, "horovod", reduction_of(options_.average));
}

void HorovodTrainer::leave() const {
  if (devices_ != nullptr) std::exchange(devices_, nullptr)->leave();
}

namespace {

DeviceOptions cluster_options(const std::vector<std::string>& devices, const DistributedServer& server,
                              const std::string& variable_update) {
  if (!read_device_names(devices).gpu_indices.empty()) {
    throw Error(ErrorCode::kUnsupported, {.problem = "workers of parameter servers do not train on GPUs yet",
                                          .expected = "devices cpu:0, cpu:1, ...",
                                          .actual = fmt::format("[{}]", fmt::join(devices, ", ")),
                                          .remedy = "use HorovodTrainer"});
  }
  DeviceOptions options;
  options.gpu = false;
  options.replicas = std::ssize(devices);
  options.variable_update = variable_update;
  options.cluster.job_name = server.job_name;
  options.cluster.ps_hosts = server.ps_hosts;
  options.cluster.worker_hosts = server.worker_hosts;
  options.cluster.task_index = server.task_index;
  check_cluster(options);
  return options;
}

}  // namespace

std::unique_ptr<train::Trainer> DistributedTrainerParameterServer::make(const TrainConfig& config) const {
  opened_ = std::make_shared<train::OpenDevices>(open_device(cluster_options(devices_, server_, variable_update_), {}));
  return make_on(*opened_, config, variable_update_, parallel::GradientReduction::kMean);
}

void DistributedTrainerParameterServer::leave() const {
  if (opened_ != nullptr) std::exchange(opened_, nullptr)->leave();
}

bool DistributedTrainerParameterServer::serve(const TrainConfig& config) const {
  const DeviceOptions options = cluster_options(devices_, server_, variable_update_);
  if (!options.cluster.is_server()) return false;
  parallel::ParameterServer::MakeOptimizers optimizers;
  for (const train::CostOptions& cost : config.model.all_costs()) optimizers.emplace_back(cost.make_optimizer);
  core::log::set_origin(fmt::format("ps {}", server_.task_index));
  parallel::ParameterServer server(parameter_server_options(options), std::move(optimizers));
  core::log::info("Running parameter server {}", server_.task_index);
  server.wait();
  return true;
}

std::unique_ptr<train::Trainer> NoOpTrainer::make(const TrainConfig& /*config*/) const {
  return std::make_unique<IdleTrainer>();
}

namespace {

// What the processes of a training must have alike.
train::StartFacts start_facts(const TrainConfig& config, int64_t steps, const train::Trainer& trainer) {
  train::StartFacts facts{{"steps of an epoch", std::to_string(steps)},
                          {"max_epoch", std::to_string(config.max_epoch)}};
  const auto* const tower_trainer = dynamic_cast<const train::TowerTrainer*>(&trainer);
  if (tower_trainer == nullptr || tower_trainer->options().devices.processes == nullptr) return facts;
  train::add_graph_facts(tower_trainer->options().graph, facts);
  // A schedule need not have the steps behind the epoch in which a callback ends the training.
  train::add_trainer_facts(*tower_trainer, steps, facts);
  return facts;
}

void run_training(const TrainConfig& given, train::Trainer& trainer,
                  const std::shared_ptr<parallel::ProcessGroup>& ranks) {
  const int64_t steps = steps_of_epoch(given, trainer);
  const TrainConfig config = settle_run(given, ranks.get());
  // Monitors of the caller's own may write anywhere: the directory is locked for the default ones.
  train::TrainingSession session(trainer, {.directory = config.monitors ? "" : config.run_directory,
                                           .ranks = ranks,
                                           .start = start_facts(config, steps, trainer),
                                           .resume = {.checkpoint = config.checkpoint},
                                           .resumes = false});
  session.print(std::make_shared<EpochLength>(steps));
  for (const auto& callback : config.callbacks) session.print(callback);
  for (const auto& callback : config.extra_callbacks ? config.extra_callbacks() : default_callbacks(trainer, steps)) {
    session.print(callback);
  }
  session.open();
  session.resume();
  train::SessionSteps plan;
  plan.monitors = [&config](int64_t first_step) {
    return config.monitors ? config.monitors(first_step) : default_monitors(config.run_directory, first_step);
  };
  session.prepare(std::move(plan));
  session.train({.steps_per_epoch = steps, .starting_epoch = config.starting_epoch, .max_epoch = config.max_epoch});
  if (!trainer.stop_reason().empty()) core::log::info("the training has stopped: {}", trainer.stop_reason());
  trainer.monitors().flush();
}

}  // namespace

std::unique_ptr<train::Trainer> launch_train_with_config(const TrainConfig& config, const TrainerType& type) {
  config.validate();
  if (type.serve(config)) return std::make_unique<IdleTrainer>();
  std::unique_ptr<train::Trainer> trainer = type.make(config);
  const auto* const tower_trainer = dynamic_cast<const train::TowerTrainer*>(trainer.get());
  const train::OpenDevices devices = tower_trainer == nullptr ? train::OpenDevices() : tower_trainer->options().devices;
  devices.report_what_fails([&] {
    run_training(config, *trainer, devices.processes);
    type.leave();
  });
  return trainer;
}

}  // namespace trainyard::frontends
