#include "trainyard/train/step/replica_pass.h"

#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/train/step/foreign_random.h"
#include "trainyard/train/step/sharpness_aware_pass.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

namespace {

// Returns the loss that is `wanted`, the cost's name; empty: the first one.
at::Tensor cost_of(const TowerOutput& result, const std::string& wanted) {
  if (result.losses.empty()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a tower gave no loss",
                                              .expected = "at least one: the first is the cost",
                                              .remedy = "return it in TowerOutput::losses"});
  }
  const std::string& name = wanted.empty() ? result.losses.begin()->name : wanted;
  const at::Tensor& cost = result.losses[name];
  if (cost.defined() && cost.numel() == 1 && cost.requires_grad()) return cost;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = fmt::format("the loss '{}' cannot be differentiated", name),
               .expected = "a scalar that depends on the model's parameters",
               .actual = cost.defined() ? fmt::format("{} elements{}", cost.numel(),
                                                      cost.requires_grad() ? "" : " without gradient")
                                        : "an undefined tensor"});
}

}  // namespace

ReplicaPass::ReplicaPass(ReplicaSet& replicas, NanGuard& nan_guard, StepTimer& timer)
    : replicas_(replicas),
      options_(replicas.options()),
      nan_guard_(nan_guard),
      timer_(timer),
      costs_(options_.all_costs()),
      looks_later_(replicas.update().sharded() && !sharding_of(options_).decides_before_update) {
  average_ = make_average();
  update_regularization();
}

std::unique_ptr<optim::WeightAverage> ReplicaPass::make_average() {
  parallel::VariableUpdate& update = replicas_.update();
  std::vector<const optim::Optimizer*> keeping;
  for (size_t c = 0; c < costs_.size(); ++c) {
    const optim::Optimizer* const optimizer = update.optimizer(0, static_cast<int>(c));
    if (optimizer != nullptr && optimizer->has_result()) keeping.push_back(optimizer);
  }
  const bool asked = options_.average && options_.average->kind != optim::AverageKind::kOptimizer;
  if (keeping.empty()) {
    if (!options_.average) return nullptr;
    return std::make_unique<optim::WeightAverage>(*options_.average, update.parameters(0), update.optimizer(0));
  }
  const bool own_pace = options_.exchange.variable_update == "asynchronous";
  // The mean is computed from the values of replica 0, which are those before the last update, and z behind it.
  const bool staged = options_.exchange.variable_update == "staged_parameter_server";
  if (own_pace || staged) {
    throw Error(ErrorCode::kUnsupported,
                {.problem = fmt::format("a schedule-free optimizer does not work where replicas {}",
                                        staged ? "read the values of one update before" : "update at their own pace"),
                 .remedy = staged ? "use parameter_server: leave out --staged_vars"
                                  : "let replicas exchange their gradients, by another variable update"});
  }
  if (asked || costs_.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = asked ? "a schedule-free optimizer keeps the mean that is evaluated"
                                  : "a schedule-free optimizer does not take turns with others",
                 .remedy = asked ? "leave the average of weights out" : "use another optimizer"});
  }
  return std::make_unique<optim::WeightAverage>(optim::WeightAverageOptions{.kind = optim::AverageKind::kOptimizer},
                                                update.parameters(0), keeping.front());
}

void ReplicaPass::update_regularization() {
  const optim::Optimizer& optimizer = *replicas_.update().optimizer(0);
  l2_of_values_.reset();
  l2_loss_ = at::Tensor();
  if (!optimizer.regularizers().empty()) l2_of_values_.emplace(optimizer, replicas_.update().parameters(0));
}

void ReplicaPass::begin_step(int64_t step) {
  step_ = step;
  update_skipped_ = false;
  for (int r = 0; r < replicas_.size(); ++r) {
    if (replicas_[r].loss_scaler) replicas_[r].loss_scaler->begin_step();
  }
  if (draws_from_aten(options_)) aten_random_ = aten_random_state();
}

at::Tensor ReplicaPass::loss_of_cost(int r) const {
  const ReplicaView& view = replicas_[r].view;
  return costs_[cost_].loss.empty() ? view.loss() : view.losses[costs_[cost_].loss];
}

void ReplicaPass::begin(int r, double learning_rate) {
  Replica& replica = replicas_[r];
  replica.state.write({.learning_rate = learning_rate, .step = step_});
  replica.batches.clear();
  if (replicas_.on_cpu()) nan_guard_.begin_step(r, replicas_.update().parameters(r));
}

void ReplicaPass::forward_backward(int r, int micro_step, data::Batch batch) {
  // Grad mode is each thread's own.
  const at::AutoGradMode with_gradients(true);
  Replica& replica = replicas_[r];
  const std::string& cost = costs_[cost_].loss;
  replica.sink->begin(micro_step, options_.micro_steps);
  const TowerOutput result = replica.step(
      {.batch = batch.tensors,
       .random = {.seed = options_.seed, .step = step_, .micro_step = micro_step, .first_sample = batch.first_sample},
       .cost = cost,
       .record = replicas_.record_of(r)});
  at::Tensor loss = cost_of(result, cost);
  if (options_.micro_steps > 1) loss = loss.div(options_.micro_steps);
  if (replica.loss_scaler) loss = loss.mul(replica.loss_scaler->scale());
  for (const auto& [name, value] : result.losses) {
    const at::Tensor share = value.detach().div(options_.micro_steps);
    replica.view.losses.set(name, micro_step == 0 ? share : replica.view.losses[name].add(share));
  }
  {
    const RecordedPart recorded(replicas_.record_of(r), StepPart::kBackward);
    replica.gradients_leave = gradients_may_leave(r);
    loss.backward();
    replica.sink->finish();
  }

  replica.view.outputs = {};
  for (const auto& [name, output] : result.outputs) replica.view.outputs.set(name, output.detach());
  replica.view.batch = std::move(batch);
}

bool ReplicaPass::gradients_may_leave(int r) const {
  return replicas_.on_cpu() && exchange_gradients(options_) && !options_.hooks.reduce_pre && !replicas_[r].searching &&
         !nan_guard_.marks_gradients(loss_of_cost(r));
}

void ReplicaPass::reduce(int r) {
  const at::NoGradGuard without_gradients;
  nn::ParameterSet& parameters = replicas_.update().parameters(r);
  if (options_.hooks.reduce_pre) options_.hooks.reduce_pre(r, parameters);
  const RecordedPart recorded(replicas_.record_of(r), StepPart::kReduce);
  if (replicas_.on_cpu()) nan_guard_.look_at_loss(r, loss_of_cost(r), parameters);
  if (replicas_[r].loss_scaler && replicas_.on_cpu()) {
    replicas_.update().set_gradient_scale(r, replicas_[r].loss_scaler->scale().item<double>());
  }
  replicas_.update().reduce(r);
}

void ReplicaPass::apply_update(int r, SharpnessAwarePass* second_pass) {
  const at::NoGradGuard without_gradients;
  Replica& replica = replicas_[r];
  parallel::VariableUpdate& update = replicas_.update();
  nn::ParameterSet& parameters = update.parameters(r);
  if (replica.loss_scaler) {
    if (const std::optional<bool> finite = update.gradients_finite(r)) {
      replica.loss_scaler->end_step(*finite, replica.state, is_last_turn());
    } else {
      replica.loss_scaler->end_step(parameters.gradients(), replica.state, is_last_turn());
    }
    replica.view.inverse_loss_scale = replica.state.tensor()[optim::StepState::kInverseLossScale];
  }
  const int own_optimizer = static_cast<int>(cost_);
  optim::Optimizer* const optimizer = update.optimizer(r, own_optimizer);
  const bool completes = optimizer != nullptr && (options_.hooks.update_pre || second_pass != nullptr);
  if (second_pass != nullptr) {
    second_pass->restore_weights(r);
  } else if (completes) {
    optimizer->complete_gradients(replica.state);
  }
  if (completes) replica.view.inverse_loss_scale = at::Tensor();
  if (r == 0 && cost_ == 0 && l2_of_values_) l2_loss_ = (*l2_of_values_)();
  if (optimizer != nullptr && options_.hooks.update_pre) options_.hooks.update_pre(r, parameters);
  // Where replicas exchange gradients, one that has no optimizer has the gradients of one that has, before its hook.
  const bool known = update.gradients_finite(r).has_value();
  const bool looks = replicas_.on_cpu() && (optimizer != nullptr || !exchange_gradients(options_));
  const auto look = [&] { nan_guard_.look_at_gradients(r, parameters, replica.state, update.gradients_finite(r)); };
  if (looks && !looks_later_) look();

  const StepTimer::Clock::time_point begin = StepTimer::Clock::now();
  const double communication_before = update.communication_seconds(r);
  {
    const RecordedPart recorded(replicas_.record_of(r), StepPart::kUpdate);
    update.update(r, replica.state, own_optimizer);
    replicas_.round_variables(r, own_optimizer);
  }
  if (looks && looks_later_) look();
  // Workers of parameter servers hear of each other's gradients behind the update.
  if (!known && update.gradients_finite(r) == false) skip_with_others(replica);
  if (r == 0) timer_.end_update(begin, update.communication_seconds(r) - communication_before);
}

// All have the same loss scale in the next step, and no average counts this one.
void ReplicaPass::skip_with_others(Replica& replica) {
  if (replica.loss_scaler) return replica.loss_scaler->skip_ended_step(replica.state);
  replica.state.tensor().data_ptr<double>()[optim::StepState::kFoundInf] = 1.0;
}

bool ReplicaPass::is_last_turn() const {
  for (size_t later = cost_ + 1; later < costs_.size(); ++later) {
    if (takes_turn(later)) return false;
  }
  return true;
}

void ReplicaPass::update_weight_average() {
  if (average_ == nullptr) return;
  // On accelerators no step is skipped that could be averaged (TowerTrainerOptions::validate).
  if (replicas_.on_cpu()) update_skipped_ |= replicas_[0].state.read().found_inf;
  if (!is_last_turn()) return;
  const StepTimer::Clock::time_point begin = StepTimer::Clock::now();
  {
    const at::NoGradGuard without_gradients;
    const RecordedPart recorded(replicas_.record_of(0), StepPart::kUpdate);
    average_->after_step(step_, update_skipped_);
  }
  timer_.end_update(begin);
}

}  // namespace trainyard::train
