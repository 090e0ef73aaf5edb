#include "trainyard/frontends/train_ctl/ctl_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/optimizers/optimizer_options.h"

namespace trainyard::frontends {
namespace {

constexpr int64_t kMostValidationSteps = 10;  // where num_iter counts batches
constexpr int64_t kMostSteps = int64_t{1} << 53;

}  // namespace

CtlPlan make_ctl_plan(const TrainCtlParams& params, int64_t train_samples, int64_t validation_samples, int ranks) {
  CtlPlan plan;
  const int64_t devices = params.devices * ranks;
  plan.global_batch_size = *params.batch_size * devices;
  plan.steps_per_epoch = train_samples / plan.global_batch_size;
  if (plan.steps_per_epoch == 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "batch_size is larger than the data: an epoch has no whole batch",
                       .where = params.data_dir.empty() ? "synthetic images" : params.data_dir,
                       .expected = fmt::format("at most {} images on {} devices", train_samples, devices),
                       .actual = std::to_string(plan.global_batch_size)});
  }
  plan.validates_each_epoch = params.counts_epochs();
  plan.end_step = *params.num_iter;
  if (params.counts_epochs()) {
    plan.end_step =
        *params.num_iter > kMostSteps / plan.steps_per_epoch ? kMostSteps : *params.num_iter * plan.steps_per_epoch;
  }
  plan.validation_steps = validation_samples / plan.global_batch_size;
  if (!params.counts_epochs()) plan.validation_steps = std::min(plan.validation_steps, kMostValidationSteps);
  return plan;
}

optim::LearningRate ctl_learning_rate(const CtlPlan& plan) {
  constexpr double kBaseRate = 0.1;
  constexpr int64_t kBaseBatch = 256;
  return optim::by_epochs({.rate = optim::scaled_rate(kBaseRate, kBaseBatch, plan.global_batch_size),
                           .boundary_epochs = {30, 60, 80},
                           .factors = {1, 0.1, 0.01, 0.001},
                           .warmup_epochs = 5},
                          static_cast<double>(plan.steps_per_epoch));
}

train::TowerTrainerOptions ctl_trainer_options(const CtlModel& model, const TrainCtlParams& params, const CtlPlan& plan,
                                               const train::OpenDevices& device, const ThreadSettings& threads) {
  train::TowerTrainerOptions options;
  options.graph = model.graph;
  options.devices = device;
  options.devices.replicas = static_cast<int>(params.devices);
  options.threads.intra_op_threads = threads.intra_op_threads;
  options.threads.placement = threads.replica;
  options.seed = params.seed;
  // Each device has variables of its own, as each process of the example.
  options.exchange.variable_update = params.devices == 1 ? "parameter_server" : "replicated";
  if (params.horovod) options.exchange.variable_update = "horovod";
  if (params.devices > 1) options.exchange.reduction = parallel::GradientReduction::kMean;
  optim::OptimizerOptions update{.numbers = {{"momentum", *params.momentum}}};
  optim::set_regularization(model.regularization, model.graph, update);
  options.make_optimizer = [update](nn::ParameterSet& parameters) {
    return optim::optimizers().get("keras_momentum")(parameters, update);
  };
  options.learning_rate = ctl_learning_rate(plan);
  return options;
}

}  // namespace trainyard::frontends
