#include "trainyard/nn/cpu/cpu_executor.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/nn/cpu/kernels/isa.h"

namespace trainyard::nn {
namespace {

// Enough for training's batch, evaluation's, and the last, smaller batch of a data set.
constexpr size_t kPlansKept = 3;

struct Call {
  std::shared_ptr<CpuExecutor::Compiled> compiled;
  std::shared_ptr<cpu::Run> run;
  NodeObserver* observer = nullptr;
};

// The whole graph as one function of autograd. `anchor` is a scalar that wants a gradient, so that autograd asks for
// the backward even where the images want none.
struct PlanFunction : torch::autograd::Function<PlanFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& images,
                            const at::Tensor& /*anchor*/, const Call& call, const StepRandom& random) {
    context->saved_data["call"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(call));
    return call.compiled->plan->forward(*call.run, images, random, call.observer);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto holder = context->saved_data["call"].toCapsule();
    Call& call = static_cast<Holder&>(*holder).call;
    if (call.run == nullptr) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "backward was called a second time for one forward pass",
                         .remedy = "run forward again: the CPU plan gives its memory back after the backward"});
    }
    const std::shared_ptr<cpu::Run> run = std::exchange(call.run, nullptr);
    const at::Tensor gradient = gradients[0].to(at::kFloat).contiguous();
    return {call.compiled->plan->backward(*run, gradient, call.observer), at::Tensor(), at::Tensor(), at::Tensor()};
  }

  struct Holder : torch::CustomClassHolder {
    explicit Holder(Call held) : call(std::move(held)) {}
    Call call;
  };
};

}  // namespace

CpuExecutor::CpuExecutor(const Graph& graph, const BuildContext& context) : Executor(graph, context) {
  if (context.device.type() != at::kCPU || (context.dtype != at::kFloat && context.dtype != at::kBFloat16)) {
    throw core::Error(core::ErrorCode::kUnsupported, {.problem = "the executor for CPUs does not compute so",
                                                      .where = graph.name,
                                                      .expected = "float or bfloat16 on the CPU",
                                                      .actual = toString(context.dtype),
                                                      .remedy = "use the reference executor"});
  }
  if (context.dtype == at::kBFloat16 && cpu::isa() == cpu::Isa::kAvx2) {
    core::log::warning("{}: with {} the CPU plan keeps float between layers; bf16 needs AVX-512", graph.name,
                       cpu::to_string(cpu::isa()));
  }
  for (const Node& node : Executor::graph().nodes) {
    layers_.push_back(std::make_unique<BoundLayer>(node, Executor::context()));
  }
}

std::shared_ptr<CpuExecutor::Compiled> CpuExecutor::compiled(int64_t batch, bool image_gradient) {
  if (const auto& choices = context().kernels.choices; choices != nullptr && choices->version() != choices_version_) {
    plans_.clear();
    choices_version_ = choices->version();
  }
  const bool training = context().mode == Mode::kTraining;
  if (const uint64_t version = context().parameters->trainable_version(); training && version != trainable_version_) {
    plans_.clear();
    trainable_version_ = version;
  }
  const bool gradients = training && context().gradients != nullptr && c10::GradMode::is_enabled();
  const cpu::PlanOptions wanted{.batch = batch, .gradients = gradients, .image_gradient = gradients && image_gradient};
  const auto found =
      std::find_if(plans_.begin(), plans_.end(), [&](const auto& c) { return c->plan->options() == wanted; });
  if (found != plans_.end()) {
    std::rotate(found, found + 1, plans_.end());
    return plans_.back();
  }
  require_allocated();
  if (plans_.size() == kPlansKept) plans_.erase(plans_.begin());
  auto made = std::make_shared<Compiled>();
  made->plan = std::make_unique<cpu::Plan>(graph(), context(), layers_, wanted);
  const auto mebibytes = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  core::log::debug("{}: {} steps for a batch of {}, {:.0f} MiB for activations, {:.0f} MiB for packed weights",
                   graph().name, made->plan->steps().size(), batch, mebibytes(made->plan->arena_bytes()),
                   mebibytes(made->plan->packed_bytes()));
  plans_.push_back(made);
  return made;
}

std::optional<ExecutorMemory> CpuExecutor::prepare(int64_t batch) {
  const cpu::Plan& plan = *compiled(batch, false)->plan;
  return ExecutorMemory{.activations = plan.arena_bytes(), .packed_weights = plan.packed_bytes()};
}

at::Tensor CpuExecutor::forward(const at::Tensor& images, const StepRandom& random) {
  check_input(images);
  const std::shared_ptr<Compiled> plan = compiled(images.size(0), images.requires_grad());
  if (plan->run == nullptr || plan->run.use_count() > 1) plan->run = std::make_shared<cpu::Run>();
  const at::Tensor input = images.to(at::kFloat).contiguous();
  if (!plan->plan->has_backward()) {
    const at::NoGradGuard no_grad;
    return plan->plan->forward(*plan->run, input.detach(), random, observer());
  }
  const at::Tensor anchor = at::zeros({}, at::kFloat).requires_grad_(true);
  return PlanFunction::apply(input, anchor, Call{plan, plan->run, observer()}, random);
}

namespace {
const core::Registration<ExecutorFactory> kCpu(executors(), "cpu", [](const Graph& graph, const BuildContext& context) {
  return std::make_unique<CpuExecutor>(graph, context);
});
}  // namespace

}  // namespace trainyard::nn
