#include "trainyard/nn/cpu/cpu_executor.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <omp.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/nn/graph/quantized_nodes.h"

namespace trainyard::nn {
namespace {

// Enough for training's batch, evaluation's, and the last, smaller batch of a data set.
constexpr size_t kPlansKept = 3;

// Activations of a piece of a batch in 8 bits. With two cores of Zen 5 and 32 MiB of last-level cache, resnet50
// computes 217 images a second 8 at a time, whose activations take 10 MiB, and 200 with 32 at a time.
constexpr int64_t kPieceBytes = int64_t{12} << 20;
constexpr int64_t kLeastPiece = 4;  // samples: fewer read each weight too often

// Says once that 8 bits are not what they are elsewhere.
void tell_without_vnni() {
  static std::once_flag said;
  std::call_once(said, [] {
    core::log::warning(
        "this processor ({}) has no instruction for products of 8-bit integers (VNNI), or it is turned off: they are "
        "computed as 16-bit ones, which takes longer. Compare with float32: trainyard bench latency "
        "--weights=MODEL --precision=int8|float32",
        cpu::describe_isa());
  });
}

struct Call {
  std::shared_ptr<CpuExecutor::Compiled> compiled;
  std::shared_ptr<cpu::Run> run;
  NodeObserver* observer = nullptr;
};

// The whole graph as one function of autograd. `anchor` is a scalar that wants a gradient, so that autograd asks for
// the backward even where no input wants one.
struct PlanFunction : torch::autograd::Function<PlanFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, at::TensorList inputs,
                                                const at::Tensor& /*anchor*/, const Call& call,
                                                const StepRandom& random) {
    const cpu::Plan& plan = *call.compiled->plan;
    context->saved_data["call"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(call));
    context->set_materialize_grads(false);
    torch::autograd::variable_list outputs = plan.forward(*call.run, inputs.vec(), random, call.observer);
    torch::autograd::variable_list constant;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!plan.has_backward(i)) constant.push_back(outputs[i]);
    }
    context->mark_non_differentiable(constant);
    return outputs;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto holder = context->saved_data["call"].toCapsule();
    Call& call = static_cast<Holder&>(*holder).call;
    if (call.run == nullptr) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "backward was called a second time for one forward pass",
                         .remedy = "run forward again: the CPU plan gives its memory back after the backward"});
    }
    const std::shared_ptr<cpu::Run> run = std::exchange(call.run, nullptr);
    torch::autograd::variable_list results = call.compiled->plan->backward(*run, gradients, call.observer);
    results.resize(results.size() + 3);  // the anchor, and what is no tensor
    return results;
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
  // Plans find the scales again: here it is about errors before anything runs.
  if (context.quantization != nullptr) {
    static_cast<void>(quantized_nodes(graph, *context.quantization));
    if (!cpu::has_vnni()) tell_without_vnni();
  }
  for (const Node& node : Executor::graph().nodes) {
    layers_.push_back(std::make_unique<BoundLayer>(node, Executor::context()));
  }
}

std::shared_ptr<CpuExecutor::Compiled> CpuExecutor::compiled(int64_t batch, std::vector<bool> input_gradients) {
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
  if (!gradients) input_gradients.clear();
  const cpu::PlanOptions wanted{.batch = batch,
                                .gradients = gradients,
                                .input_gradients = std::move(input_gradients),
                                .threads = omp_get_max_threads()};
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

int64_t CpuExecutor::pieces(int64_t batch) {
  if (context().quantization == nullptr || batch <= kLeastPiece) return 1;
  if (sample_bytes_ == 0) {
    require_allocated();
    const cpu::Plan plan(graph(), context(), layers_,
                         {.batch = batch, .gradients = false, .threads = omp_get_max_threads()});
    sample_bytes_ = std::max<int64_t>(plan.arena_bytes() / batch, 1);
  }
  const int64_t most = std::max(kPieceBytes / sample_bytes_, kLeastPiece), fewest = (batch + most - 1) / most;
  // Pieces of one size share a plan.
  for (int64_t count = fewest; count < 2 * fewest; ++count) {
    if (batch % count == 0) return count;
  }
  return fewest;
}

std::optional<ExecutorMemory> CpuExecutor::prepare(int64_t batch) {
  const int64_t count = pieces(batch), larger = (batch + count - 1) / count;
  const cpu::Plan& plan = *compiled(larger, {})->plan;
  ExecutorMemory memory{.activations = plan.arena_bytes(), .packed_weights = plan.packed_bytes()};
  if (batch % count == 0) return memory;
  const cpu::Plan& smaller = *compiled(larger - 1, {})->plan;
  memory.activations += smaller.arena_bytes();
  memory.packed_weights += smaller.packed_bytes();
  return memory;
}

core::NamedTensors CpuExecutor::run(const core::NamedTensors& inputs, const StepRandom& random) {
  const std::vector<at::Tensor> given = checked_inputs(inputs);
  const int64_t batch = given.front().size(0), count = pieces(batch);
  std::vector<at::Tensor> values;
  if (count == 1) values = run_plan(given, random);
  std::vector<std::vector<at::Tensor>> parts(graph().outputs.size());  // by output and piece
  for (int64_t i = 0; count > 1 && i < count; ++i) {
    std::vector<at::Tensor> piece;
    for (const at::Tensor& input : given) piece.push_back(input.slice(0, batch * i / count, batch * (i + 1) / count));
    const std::vector<at::Tensor> made = run_plan(piece, random);
    for (size_t output = 0; output < made.size(); ++output) parts[output].push_back(made[output]);
  }
  core::NamedTensors outputs;
  for (size_t i = 0; i < parts.size(); ++i) {
    outputs.set(graph().outputs[i].name, count == 1 ? values[i] : at::cat(parts[i]));
  }
  return outputs;
}

std::vector<at::Tensor> CpuExecutor::run_plan(const std::vector<at::Tensor>& given, const StepRandom& random) {
  std::vector<bool> input_gradients;
  for (const at::Tensor& input : given) input_gradients.push_back(input.requires_grad());
  if (std::find(input_gradients.begin(), input_gradients.end(), true) == input_gradients.end()) input_gradients.clear();
  const std::shared_ptr<Compiled> plan = compiled(given.front().size(0), std::move(input_gradients));
  if (plan->run == nullptr || plan->run.use_count() > 1) plan->run = std::make_shared<cpu::Run>();
  std::vector<at::Tensor> values;
  for (const at::Tensor& input : given) values.push_back(input.to(at::kFloat).contiguous());
  if (plan->plan->has_backward()) {
    const at::Tensor anchor = at::zeros({}, at::kFloat).requires_grad_(true);
    return PlanFunction::apply(at::TensorList(values), anchor, Call{plan, plan->run, observer()}, random);
  }
  const at::NoGradGuard no_grad;
  for (at::Tensor& value : values) value = value.detach();
  return plan->plan->forward(*plan->run, values, random, observer());
}

namespace {
const core::Registration<ExecutorFactory> kCpu(executors(), "cpu", [](const Graph& graph, const BuildContext& context) {
  return std::make_unique<CpuExecutor>(graph, context);
});
}  // namespace

}  // namespace trainyard::nn
