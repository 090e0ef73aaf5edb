#include "trainyard/frontends/callback_loop/callback_loop.h"

#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/data/sources/round_robin_source.h"
#include "trainyard/frontends/callback_loop/loop_replicas.h"
#include "trainyard/frontends/callback_loop/loop_steps.h"
#include "trainyard/frontends/options/device_names.h"
#include "trainyard/parallel/process_group/launcher_claims.h"
#include "trainyard/train/devices/open_devices.h"
#include "trainyard/train/monitors/tensorboard_monitor.h"

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

}  // namespace

void Options::validate() const {
  if (batch_size >= 1) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "batch_size cannot be used", .expected = "at least 1", .actual = std::to_string(batch_size)});
}

std::unique_ptr<train::TowerTrainer> train(int64_t steps, const std::vector<std::string>& devices,
                                           const Options& options, Callbacks callbacks) {
  parallel::refuse_copies("train alone");
  options.validate();
  callbacks.validate();
  const DeviceOptions named = read_device_names(devices);
  if (steps < 1 || options.batch_size % named.replicas != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "the training cannot be begun",
                 .expected = "at least 1 step, and a batch_size that is a multiple of the number of devices",
                 .actual = fmt::format("{} steps, {} on {}", steps, options.batch_size, named.replicas)});
  }
  const train::OpenDevices opened = open_named_devices(named);
  const nn::AcceleratorScope on_devices = opened.use();
  const auto replicas = std::make_shared<LoopReplicas>(options, std::move(callbacks), opened.replicas);
  const auto source = round_robin_batches(replicas->callbacks(), options.batch_size / opened.replicas, opened.replicas);

  auto trainer = std::make_unique<train::TowerTrainer>(
      train::TowerTrainerOptions{
          .tower = [replicas](train::TowerContext& context) { return replicas->tower()(context); },
          .devices = opened,
          // update_pre is called where an optimizer is: on each replica.
          .exchange = {.variable_update = "replicated", .reduction = parallel::GradientReduction::kMean},
          // A gradient that is not finite is update_pre's affair.
          .on_nan = train::OnNan::kIgnore,
          .seed = options.seed,
          .make_optimizer = replicas->make_optimizer(),
          .learning_rate = optim::constant(options.learning_rate),
          .hooks = replicas->hooks()},
      source);
  // Set by hand, so that every checkpoint holds it.
  trainer->hyperparameters().set("learning_rate", options.learning_rate);
  const auto loop_steps = std::make_shared<LoopSteps>(replicas, *trainer);
  trainer->add(loop_steps);
  loop_steps->restore();
  if (!options.summary_path.empty()) {
    trainer->monitors().add(std::make_unique<train::TensorBoardMonitor>(options.summary_path, trainer->global_step()));
  }
  if (trainer->global_step() >= steps) {
    core::log::info("{} of {} steps are done already", trainer->global_step(), steps);
    return trainer;
  }
  trainer->train({.steps_per_epoch = steps, .starting_step = trainer->global_step()});
  trainer->monitors().flush();
  return trainer;
}

}  // namespace trainyard::frontends::callback_loop
