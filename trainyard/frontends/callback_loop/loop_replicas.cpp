#include "trainyard/frontends/callback_loop/loop_replicas.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/pattern.h"
#include "trainyard/core/base/registry.h"

namespace trainyard::frontends::callback_loop {

using core::Error;
using core::ErrorCode;

namespace {

bool names_parameter(const std::optional<std::vector<std::string>>& patterns, const std::string& name) {
  return !patterns || std::any_of(patterns->begin(), patterns->end(),
                                  [&](const std::string& pattern) { return core::matches_pattern(name, pattern); });
}

void require_parameters(const std::optional<std::vector<std::string>>& patterns, const nn::ParameterSet& parameters) {
  for (const std::string& pattern : patterns.value_or(std::vector<std::string>())) {
    const auto& all = parameters.segments();
    if (std::any_of(all.begin(), all.end(),
                    [&](const nn::Segment& each) { return core::matches_pattern(each.spec.name, pattern); })) {
      continue;
    }
    throw Error(ErrorCode::kNotFound, {.problem = fmt::format("no parameter is named as '{}'", pattern),
                                       .where = "trainable_vars of grad_pre"});
  }
}

// Each gradient that update_pre gives must be one that it got.
void require_gradients(const core::NamedTensors& given, const core::NamedTensors& asked) {
  for (const auto& [name, gradient] : given) {
    const at::Tensor* const known = asked.find(name);
    if (known != nullptr && gradient.defined() && gradient.sizes() == known->sizes()) continue;
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "update_pre gave a gradient that it did not get",
                 .where = name,
                 .expected = known == nullptr ? "a name of its gradients" : fmt::format("{} elements", known->numel()),
                 .actual = known == nullptr      ? core::nearest_name(name, asked.names())
                           : !gradient.defined() ? "an undefined tensor"
                                                 : fmt::format("{}, in another shape", gradient.numel())});
  }
}

std::vector<nn::ParameterId> trained_ids(const nn::ParameterSet& parameters) {
  std::vector<nn::ParameterId> ids;
  for (int index = 0; index < static_cast<int>(parameters.size()); ++index) {
    if (parameters.trainable({index})) ids.push_back({index});
  }
  return ids;
}

}  // namespace

LoopReplicas::LoopReplicas(Options options, Callbacks callbacks, int replicas, int total)
    : options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      replicas_(static_cast<size_t>(replicas)),
      total_(total) {}

const optim::Optimizer& LoopReplicas::optimizer(int r) const {
  return *optimizers_.at(static_cast<size_t>(r));
}

std::function<std::unique_ptr<optim::Optimizer>(nn::ParameterSet&)> LoopReplicas::make_optimizer() {
  return [this](nn::ParameterSet& parameters) {
    auto optimizer =
        in_callback("create_opt", [&] { return callbacks_.create_opt(options_.learning_rate, parameters); });
    if (optimizer == nullptr) throw Error(ErrorCode::kInvalidArgument, "create_opt gave no optimizer");
    optimizers_.push_back(optimizer.get());
    return optimizer;
  };
}

train::TowerFunction LoopReplicas::tower() {
  return [this](train::TowerContext& context) -> train::TowerStep {
    Model model = in_callback("create_model", [&] { return callbacks_.create_model(context); });
    if (!model.call) throw Error(ErrorCode::kInvalidArgument, "create_model gave a model that cannot be called");
    if (!context.training()) {
      return [this, &context, model](const train::TowerInput& in) -> train::TowerOutput {
        const double lr = context.hyperparameters().get("learning_rate");
        const Tensors input = in_callback("input_pre", [&] { return callbacks_.input_pre(in.batch, lr); });
        return {.outputs = named_outputs(model.call(input, in))};
      };
    }
    Replica& own = replicas_[static_cast<size_t>(context.index())];
    own.model = std::move(model);
    own.loss_function = in_callback("create_loss", [&] { return callbacks_.create_loss(context); });
    if (!own.loss_function) throw Error(ErrorCode::kInvalidArgument, "create_loss gave no loss");
    return [this, &own, &context](const train::TowerInput& in) { return run_tower(own, context, in); };
  };
}

core::NamedTensors LoopReplicas::named_outputs(const Tensors& outputs) {
  core::NamedTensors named;
  for (size_t i = 0; i < outputs.size(); ++i) named.set(i == 0 ? "output" : fmt::format("output_{}", i), outputs[i]);
  return named;
}

train::TowerOutput LoopReplicas::run_tower(Replica& own, const train::TowerContext& context,
                                           const train::TowerInput& in) {
  own.lr = context.hyperparameters().get("learning_rate");
  own.batch = in.batch;
  const Tensors input = in_callback("input_pre", [&] { return callbacks_.input_pre(in.batch, own.lr); });
  own.output = in_callback("the model", [&] { return own.model.call(input, in); });
  const Tensors arguments =
      in_callback("loss_pre", [&] { return callbacks_.loss_pre(own.output, in.batch, own.model, own.lr); });
  own.loss = in_callback("the loss", [&] { return own.loss_function(arguments, in); });
  const GradPreResult result = in_callback("grad_pre", [&] {
    return callbacks_.grad_pre(own.loss, own.output, in.batch, own.model, own.loss_function, own.lr);
  });
  if (!result.loss_per_batch.defined()) {
    throw Error(ErrorCode::kInvalidArgument, "grad_pre gave no loss_per_batch");
  }
  require_parameters(result.trainable_vars, context.parameters());
  if (result.trainable_vars && !context.device().is_cpu()) {
    throw Error(ErrorCode::kUnsupported,
                {.problem = "a step cannot update a part of the parameters on an accelerator yet",
                 .where = "trainable_vars of grad_pre",
                 .remedy = "train on the CPU"});
  }
  own.trainable_vars = result.trainable_vars;

  // Gradients are averaged over replicas: this times the number of replicas makes it a sum.
  const auto replicas = static_cast<double>(total_);
  at::Tensor cost = result.loss_per_batch.sum().mul(replicas / static_cast<double>(options_.batch_size));
  if (result.extra_loss.defined()) {
    cost = cost.add(result.extra_loss, options_.update_scope == UpdateScope::kGlobal ? 1.0 : replicas);
  }
  return {.losses = {{"cost", cost}}, .outputs = named_outputs(own.output)};
}

train::StepHooks LoopReplicas::hooks() {
  const auto rest_on = [this](int r, nn::ParameterSet& parameters) { rest(r, parameters); };
  if (options_.update_scope == UpdateScope::kReplica) {
    const auto replicas = static_cast<double>(total_);
    return {.reduce_pre = [this, replicas](int r,
                                           nn::ParameterSet& parameters) { change_gradients(r, parameters, replicas); },
            .update_pre = rest_on};
  }
  return {.update_pre = [this, rest_on](int r, nn::ParameterSet& parameters) {
    change_gradients(r, parameters, 1);
    rest_on(r, parameters);
  }};
}

void LoopReplicas::change_gradients(int r, nn::ParameterSet& parameters, double factor) {
  Replica& own = replicas_[static_cast<size_t>(r)];
  own.loss = own.loss.detach();
  for (at::Tensor& output : own.output) output = output.detach();
  own.gradients = {};
  for (const nn::ParameterId id : trained_ids(parameters)) {
    const std::string& name = parameters.segment(id).spec.name;
    const at::Tensor gradient = parameters.gradient(id);
    if (!names_parameter(own.trainable_vars, name)) continue;
    own.gradients.set(name, factor == 1 ? gradient.clone() : gradient.div(factor));
  }
  UpdatePreResult result = in_callback("update_pre", [&] {
    return callbacks_.update_pre(own.gradients, own.loss, own.output, own.batch, own.model, own.loss_function, own.lr,
                                 optimizer(r));
  });
  require_gradients(result.update_gradients, own.gradients);
  own.update_gradients = std::move(result.update_gradients);
  own.display_gradients = std::move(result.display_gradients);
  own.resting.clear();
  for (const nn::ParameterId id : trained_ids(parameters)) {
    const at::Tensor* const changed = own.update_gradients.find(parameters.segment(id).spec.name);
    at::Tensor gradient = parameters.gradient(id);
    if (changed == nullptr) {
      own.resting.push_back(id);
      gradient.zero_();
    } else if (factor == 1) {
      gradient.copy_(*changed);
    } else {
      gradient.copy_(changed->mul(factor));
    }
  }
}

// An optimizer leaves parameters that are not trainable, and their slots, as they are.
void LoopReplicas::rest(int r, nn::ParameterSet& parameters) {
  for (const nn::ParameterId id : replica(r).resting) parameters.set_trainable(id, false);
}

void LoopReplicas::settle_step(const train::StepView& view) {
  for (size_t r = 0; r < replicas_.size(); ++r) {
    Replica& own = replicas_[r];
    if (own.resting != replicas_[0].resting) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = "replicas have updated different parameters",
                   .where = "trainable_vars of grad_pre, or update_gradients of update_pre",
                   .expected = "the same on all",
                   .actual = fmt::format("{} left out on replica {}, {} on replica 0", own.resting.size(), r,
                                         replicas_[0].resting.size())});
    }
  }
  for (size_t r = 0; r < replicas_.size(); ++r) {
    for (const nn::ParameterId id : replicas_[r].resting) view.replicas[r].parameters->set_trainable(id, true);
  }
}

void LoopReplicas::end_step() {
  for (Replica& own : replicas_) {
    own = {.model = std::move(own.model), .loss_function = std::move(own.loss_function)};
  }
}

}  // namespace trainyard::frontends::callback_loop
