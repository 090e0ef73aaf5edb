#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <ATen/ops/nan_to_num.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/frame.h"
#include "trainyard/frontends/callback_loop/callback_loop.h"
#include "trainyard/optim/optimizers/norm_clipper.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/optimizers/optimizer_options.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/callbacks/summary_time.h"

namespace trainyard::frontends::callback_loop {
namespace {

constexpr double kGlobalNorm = 10;

[[noreturn]] void refuse_batch(const core::NamedTensors& batch, const char* callback, const char* what) {
  throw core::Error(
      core::ErrorCode::kInvalidArgument,
      {.problem = fmt::format("the default {} does not know which tensor of a batch is {}", callback, what),
       .expected = "a batch of two",
       .actual = fmt::format("{}", batch.size()),
       .remedy = fmt::format("give a callback {} of your own", callback)});
}

// Returns the mean loss of the samples of the global batch. What does not depend on the batch is not in it. Collective:
// a process has the losses of its own devices, which are as many in each.
double loss_of_all(const StepInput& in) {
  double own = 0;
  for (const at::Tensor& loss : in.losses) own += loss.sum().item<double>();
  const train::OpenDevices& devices = in.trainer.options().devices;
  const auto samples = static_cast<double>(in.trainer.source().batch_size() * devices.replicas * devices.ranks());
  if (devices.processes == nullptr) return own / samples;
  double sum = 0;
  for (const std::string& text : devices.processes->gather("the loss of a step", core::BodyWriter().real(own).take())) {
    sum += core::BodyReader(text).real();
  }
  return sum / samples;
}

// Called on each device. Each process takes part once, with its first device; device 0 writes.
void write_loss(const StepInput& in, std::ostream& out) {
  if (in.dev % in.trainer.options().devices.replicas != 0) return;
  const double loss = loss_of_all(in);
  if (in.dev != 0) return;
  out << fmt::format("step {}: loss {:.6g}\n", in.step, loss) << std::flush;
  in.trainer.monitors().write({.global_step = in.step,
                               .epoch = static_cast<double>(in.trainer.source().position().epoch),
                               .wall_time = train::system_wall_clock(),
                               .phase = "train",
                               .values = {{"loss", loss}}});
}

std::unique_ptr<optim::Optimizer> nadam(double /*lr*/, nn::ParameterSet& parameters) {
  std::unique_ptr<optim::Optimizer> optimizer = optim::optimizers().get("torch_nadam")(parameters, {});
  optimizer->set_hyperparameter("epsilon", 0.001);
  return optimizer;
}

Checkpoints all_of_trainer(const CheckpointInput& in) {
  // Not owned: the trainer owns who asks for this.
  const std::shared_ptr<core::Stateful> ckpt(std::shared_ptr<void>(), &in.trainer);
  return {.ckpt = ckpt, .manager = std::make_shared<CheckpointManager>(in.ckpt_path, ckpt)};
}

Tensors first_of_two(const core::NamedTensors& batch, double /*lr*/) {
  if (batch.empty() || batch.size() > 2) refuse_batch(batch, "input_pre", "the input");
  return {batch.begin()->tensor};
}

Tensors output_and_second(const Tensors& output, const core::NamedTensors& batch, const Model& /*train_model*/,
                          double /*lr*/) {
  if (batch.size() != 2) refuse_batch(batch, "loss_pre", "the target");
  Tensors arguments = output;
  arguments.push_back((batch.begin() + 1)->tensor);
  return arguments;
}

template <typename Function>
void require_callback(const Function& callback, const char* name, const char* signature) {
  if (callback) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("the callback {} must be given", name),
                     .where = "callback_loop::Callbacks",
                     .remedy = fmt::format("set callbacks.{} to a function {}", name, signature)});
}

template <typename Steps>
void require_steps(const Steps& steps, const char* name) {
  for (const auto& [step, callback] : steps) {
    require_callback(callback, fmt::format("{}[{}]", name, step).c_str(), "void(const StepInput& in)");
    if (step >= 1) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = fmt::format("{} counts steps from 1", name), .actual = std::to_string(step)});
  }
}

}  // namespace

void Callbacks::validate() const {
  require_steps(every_steps, "every_steps");
  require_steps(at_step, "at_step");
  require_callback(create_dataset, "create_dataset", "Dataset(int64_t per_replica_batch_size)");
  require_callback(make_batches, "make_batches", "Dataset(Dataset dataset, int64_t per_replica_batch_size)");
  require_callback(create_model, "create_model", "Model(train::TowerContext& context)");
  require_callback(create_loss, "create_loss", "Loss(train::TowerContext& context)");
  require_callback(create_opt, "create_opt",
                   "std::unique_ptr<optim::Optimizer>(double lr, nn::ParameterSet& parameters)");
  require_callback(create_ckpt, "create_ckpt", "Checkpoints(const CheckpointInput& in)");
  require_callback(input_pre, "input_pre", "Tensors(const core::NamedTensors& batch, double lr)");
  require_callback(
      loss_pre, "loss_pre",
      "Tensors(const Tensors& output, const core::NamedTensors& batch, const Model& train_model, double lr)");
  require_callback(
      grad_pre, "grad_pre",
      "GradPreResult(const at::Tensor& loss, const Tensors& output, const core::NamedTensors& batch, const "
      "Model& train_model, const Loss& train_loss, double lr)");
  require_callback(
      update_pre, "update_pre",
      "UpdatePreResult(const core::NamedTensors& gradients, const at::Tensor& loss, const Tensors& output, "
      "const core::NamedTensors& batch, const Model& train_model, const Loss& train_loss, double lr, const "
      "optim::Optimizer& optimizer)");
}

core::NamedTensors without_nan(const core::NamedTensors& gradients) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  core::NamedTensors result;
  for (const auto& [name, gradient] : gradients) {
    // A sum without NaN has no NaN in it, and to add up is less than to copy.
    const bool clean = !std::isnan(gradient.sum().item<double>());
    result.set(name, clean ? gradient : at::nan_to_num(gradient, 0.0, kInfinite, -kInfinite));
  }
  return result;
}

core::NamedTensors clip_by_global_norm(const core::NamedTensors& gradients, double norm) {
  double squares = 0;
  for (const auto& [name, gradient] : gradients) {
    const auto own = gradient.norm().item<double>();
    squares += own * own;
  }
  const double factor = optim::clip_factor({.kind = optim::NormClipKind::kGlobal, .bound = norm}, std::sqrt(squares));
  if (factor == 1) return gradients;
  core::NamedTensors result;
  for (const auto& [name, gradient] : gradients) result.set(name, gradient.mul(factor));
  return result;
}

Callbacks standard_callbacks(std::ostream& out) {
  Callbacks callbacks;
  callbacks.every_steps[1] = [&out](const StepInput& in) {
    if (in.dev == 0) out << fmt::format("step {}\n", in.step) << std::flush;
  };
  callbacks.every_steps[10] = [&out](const StepInput& in) { write_loss(in, out); };
  callbacks.make_batches = [](Dataset dataset, int64_t /*per_replica_batch_size*/) { return dataset; };
  callbacks.create_opt = nadam;
  callbacks.create_ckpt = all_of_trainer;
  callbacks.input_pre = first_of_two;
  callbacks.loss_pre = output_and_second;
  callbacks.grad_pre = [](const at::Tensor& loss, const Tensors&, const core::NamedTensors&, const Model& train_model,
                          const Loss&, double) -> GradPreResult {
    return {.loss_per_batch = loss,
            .extra_loss = train_model.regularization ? train_model.regularization() : at::Tensor()};
  };
  callbacks.update_pre = [](const core::NamedTensors& gradients, const at::Tensor&, const Tensors&,
                            const core::NamedTensors&, const Model&, const Loss&, double,
                            const optim::Optimizer&) -> UpdatePreResult {
    const core::NamedTensors clean = without_nan(gradients);
    return {.update_gradients = clip_by_global_norm(clean, kGlobalNorm), .display_gradients = clean};
  };
  return callbacks;
}

}  // namespace trainyard::frontends::callback_loop
