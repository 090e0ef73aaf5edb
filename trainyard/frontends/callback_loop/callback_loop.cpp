#include "trainyard/frontends/callback_loop/callback_loop.h"

#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/data/sources/round_robin_source.h"
#include "trainyard/frontends/callback_loop/loop_replicas.h"
#include "trainyard/frontends/callback_loop/loop_steps.h"
#include "trainyard/frontends/options/device_names.h"
#include "trainyard/parallel/process_group/shared_outcome.h"
#include "trainyard/train/devices/open_devices.h"
#include "trainyard/train/monitors/monitors.h"
#include "trainyard/train/session/rank_batches.h"
#include "trainyard/train/session/training_session.h"

namespace trainyard::frontends::callback_loop {

using core::Error;
using core::ErrorCode;

namespace {

std::shared_ptr<data::BatchSource> round_robin_batches(const Callbacks& callbacks, int64_t batch_size, int replicas) {
  Dataset dataset = in_callback("create_dataset", [&] { return callbacks.create_dataset(batch_size); });
  if (dataset == nullptr) throw Error(ErrorCode::kInvalidArgument, "create_dataset gave no dataset");
  const Dataset batches =
      in_callback("make_batches", [&] { return callbacks.make_batches(std::move(dataset), batch_size); });
  if (batches == nullptr) throw Error(ErrorCode::kInvalidArgument, "make_batches gave no batches");
  if (batches->batch_size() != batch_size) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "the batches of a replica are of another size",
                 .expected = fmt::format("{} samples", batch_size),
                 .actual = std::to_string(batches->batch_size()),
                 .remedy = "take the size that create_dataset gets, or make such batches in make_batches"});
  }
  return std::make_shared<data::RoundRobinSource>(batches, replicas);
}

[[noreturn]] void refuse_start(int64_t steps, int64_t batch_size, int64_t devices) {
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "the training cannot be begun",
               .expected = "at least 1 step, and a batch_size that is a multiple of the number of devices",
               .actual = fmt::format("{} steps, {} on {}", steps, batch_size, devices)});
}

// What the processes of a training must have alike.
train::StartFacts start_facts(int64_t steps, const Options& options, const train::OpenDevices& opened) {
  train::StartFacts facts;
  const auto add = [&facts](const char* name, const auto& value) { facts.push_back({name, fmt::format("{}", value)}); };
  add("steps", steps);
  add("batch_size", options.batch_size);
  add("learning_rate", options.learning_rate);
  add("update_scope", static_cast<int>(options.update_scope));
  add("seed", options.seed);
  add("devices of a process", opened.replicas);
  return facts;
}

std::unique_ptr<train::TowerTrainer> make_trainer(const Options& options, const train::OpenDevices& opened,
                                                  const std::shared_ptr<LoopReplicas>& replicas) {
  const int total = opened.replicas * opened.ranks();
  const auto all = round_robin_batches(replicas->callbacks(), options.batch_size / total, total);
  auto trainer = std::make_unique<train::TowerTrainer>(
      train::TowerTrainerOptions{
          .tower = [replicas](train::TowerContext& context) { return replicas->tower()(context); },
          .devices = opened,
          // update_pre is called where an optimizer is: on each replica.
          .exchange = {.variable_update = variable_update_of(opened, "replicated"),
                       .reduction = parallel::GradientReduction::kMean},
          // A gradient that is not finite is update_pre's affair.
          .on_nan = train::OnNan::kIgnore,
          .seed = options.seed,
          .make_optimizer = replicas->make_optimizer(),
          .learning_rate = optim::constant(options.learning_rate),
          .hooks = replicas->hooks()},
      train::batches_of_rank(all, opened));
  // Set by hand, so that every checkpoint holds it.
  trainer->hyperparameters().set("learning_rate", options.learning_rate);
  return trainer;
}

void run_training(int64_t steps, const Options& options, const train::OpenDevices& opened,
                  const std::shared_ptr<LoopReplicas>& replicas, train::TowerTrainer& trainer) {
  const auto loop_steps = std::make_shared<LoopSteps>(replicas, trainer, opened.rank() * opened.replicas);
  const CheckpointManager& manager = loop_steps->make_checkpoints();
  train::TrainingSession session(trainer, {.directory = manager.directory(),
                                           .state = manager.ckpt(),
                                           .ranks = opened.processes,
                                           .start = start_facts(steps, options, opened)});
  session.print(loop_steps);
  session.open();
  session.resume();
  train::SessionSteps plan;
  if (!options.summary_path.empty()) {
    plan.monitors = [&options](int64_t first_step) {
      std::vector<std::unique_ptr<train::Monitor>> monitors;
      monitors.push_back(std::make_unique<train::TensorBoardMonitor>(options.summary_path, first_step));
      return monitors;
    };
  }
  session.prepare(std::move(plan));
  if (trainer.global_step() >= steps) {
    core::log::info("{} of {} steps are done already", trainer.global_step(), steps);
    return;
  }
  session.train({.steps_per_epoch = steps, .starting_step = trainer.global_step()});
  trainer.monitors().flush();
}

}  // namespace

void Options::validate() const {
  if (batch_size >= 1) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "batch_size cannot be used", .expected = "at least 1", .actual = std::to_string(batch_size)});
}

std::unique_ptr<train::TowerTrainer> train(int64_t steps, const std::vector<std::string>& devices,
                                           const Options& options, Callbacks callbacks) {
  options.validate();
  callbacks.validate();
  const DeviceOptions named = read_device_names(devices);
  if (steps < 1 || options.batch_size % named.replicas != 0) refuse_start(steps, options.batch_size, named.replicas);
  const train::OpenDevices opened = open_named_devices_together(named);
  const nn::AcceleratorScope on_devices = opened.use();
  std::unique_ptr<train::TowerTrainer> trainer;
  const auto run = [&] {
    const int total = opened.replicas * opened.ranks();
    if (options.batch_size % total != 0) refuse_start(steps, options.batch_size, total);
    const auto replicas = std::make_shared<LoopReplicas>(options, std::move(callbacks), opened.replicas, total);
    trainer = make_trainer(options, opened, replicas);
    run_training(steps, options, opened, replicas, *trainer);
    if (opened.ranks() > 1) opened.leave();
  };
  opened.processes == nullptr ? run() : parallel::report_what_fails(*opened.processes, run);
  return trainer;
}

}  // namespace trainyard::frontends::callback_loop
