#include "trainyard/nn/cuda/cuda_executor.h"

#include <algorithm>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/cuda/libtorch.h"
#include "trainyard/nn/cuda/device_tensor.h"
#include "trainyard/nn/cuda/float_precision.h"
#include "trainyard/nn/reference/backward_observer.h"

namespace trainyard::nn {
namespace {

bool computes_in(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16;
}

// ATen's settings of cuDNN are the process's. A fixed rule instead of measuring is what --deterministic asks for.
void choose_algorithms(const KernelOptions& kernels) {
  const bool measures = kernels.convolutions != ConvolutionPolicy::kByShape;
  at::globalContext().setBenchmarkCuDNN(measures);
  if (!measures) at::globalContext().setDeterministicCuDNN(true);
}

// Stochastic depth has a kernel here, layer scale has none: such a unit's nodes run one by one.
std::vector<Unit> units_of(const Graph& graph, const Fusions& allowed) {
  std::vector<Unit> units;
  for (Unit& unit : fuse(graph, false, allowed)) {
    if (unit.depth < 0) {
      units.push_back(std::move(unit));
      continue;
    }
    for (const int node : unit.nodes) units.push_back({.nodes = {node}});
  }
  return units;
}

}  // namespace

CudaExecutor::CudaExecutor(const Graph& graph, const BuildContext& context)
    : Executor(graph, context),
      weights_(*context.parameters, context.dtype),
      layer_context_{.graph = Executor::graph(), .build = Executor::context(), .weights = weights_} {
  if (!context.device.is_cuda() || !computes_in(context.dtype)) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "the executor for GPUs does not compute so",
                       .where = graph.name,
                       .expected = "float, half or bfloat16 on a CUDA device",
                       .actual = std::string(toString(context.dtype)) + " on " + context.device.str(),
                       .remedy = "use the reference executor"});
  }
  require_one_input_and_output("the CUDA executor");
  for (const Node& node : Executor::graph().nodes) {
    plain_.push_back(std::make_unique<BoundLayer>(node, Executor::context()));
  }
  make_layers();
}

void CudaExecutor::make_layers() {
  std::vector<int> last_reader(graph().nodes.size(), -1), readers(graph().nodes.size(), 0);
  for (const Unit& unit : units_of(graph(), Executor::context().kernels.fusions)) {
    Layer layer{.nodes = unit.nodes};
    for (const int input : cuda::unit_inputs(graph(), unit)) {
      layer.inputs.push_back({.node = input, .first = readers[static_cast<size_t>(input)]++ == 0});
    }
    std::vector<BoundLayer*> plain;
    for (const int node : unit.nodes) plain.push_back(plain_[static_cast<size_t>(node)].get());
    layer.layer = cuda::make_unit_layer(layer_context_, unit, std::move(plain));
    for (const Read& input : layer.inputs) {
      last_reader[static_cast<size_t>(input.node)] = static_cast<int>(layers_.size());
    }
    layers_.push_back(std::move(layer));
  }
  for (Layer& layer : layers_) layer.shared = readers[static_cast<size_t>(layer.nodes.back())] > 1;
  for (size_t node = 0; node < last_reader.size(); ++node) {
    if (last_reader[node] < 0 || static_cast<int>(node) == graph().output()) continue;
    layers_[static_cast<size_t>(last_reader[node])].last_uses.push_back(static_cast<int>(node));
  }
}

void CudaExecutor::begin(const StepRandom& random) {
  const at::TensorOptions options = context().parameters->values().options();
  if (!layer_context_.step.defined()) {
    layer_context_.step = at::empty({}, options.dtype(at::kLong));
    if (context().gradients != nullptr && context().mode == Mode::kTraining) {
      layer_context_.anchor = at::zeros({}, at::kFloat).requires_grad_(true);
    }
  }
  choose_algorithms(context().kernels);
  cuda::apply_float_precision();
  const bool captured = c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
  if (context().mode == Mode::kTraining) {
    cuda::set_step(layer_context_.step.data_ptr<int64_t>(), random.step, captured, core::cuda::current_stream());
  }
  weights_.refresh(captured);
}

CudaExecutor::Value CudaExecutor::run_unit(Layer& layer, std::span<const at::Tensor> inputs, const StepRandom& random) {
  if (layer.shared) return layer.layer->run_for_readers(inputs, random);
  return {layer.layer->run(inputs, random), at::Tensor()};
}

CudaExecutor::Value CudaExecutor::run_layer(Layer& layer, std::vector<Value>& values, const StepRandom& random) {
  std::vector<at::Tensor> inputs;
  for (const Read& input : layer.inputs) {
    const Value& value = values[static_cast<size_t>(input.node)];
    inputs.push_back(input.first || !value[1].defined() ? value[0] : value[1]);
  }
  for (const int input : layer.last_uses) values[static_cast<size_t>(input)] = {};
  if (observer() == nullptr) return run_unit(layer, inputs, random);
  const reference::AutogradMark before = reference::autograd_mark();
  observer()->begins();
  const NodeRun::Clock::time_point begin = NodeRun::Clock::now();
  Value output = run_unit(layer, inputs, random);
  const int head = layer.nodes.front();
  observer()->ran({.nodes = layer.nodes,
                   .kernel = graph().nodes[static_cast<size_t>(head)].kind(),
                   .begin = begin,
                   .end = NodeRun::Clock::now()});
  reference::observe_backward(output[0], before, head, *observer());
  return output;
}

core::NamedTensors CudaExecutor::run(const core::NamedTensors& inputs, const StepRandom& random) {
  const at::Tensor images = checked_inputs(inputs).front();
  require_allocated();
  require_all_trainable("the CUDA executor");
  const at::AutoGradMode autograd(context().mode == Mode::kTraining && c10::GradMode::is_enabled());
  begin(random);
  std::vector<Value> values(graph().nodes.size());
  values[0][0] = cuda::channels_innermost(images.to(images.options().device(context().device).dtype(context().dtype)));
  for (Layer& layer : layers_) values[static_cast<size_t>(layer.nodes.back())] = run_layer(layer, values, random);
  const GraphOutput& output = graph().outputs.front();
  return {{output.name, values[static_cast<size_t>(output.node)][0].to(at::kFloat)}};
}

namespace {
const core::Registration<ExecutorFactory> kCuda(executors(), "cuda",
                                                [](const Graph& graph, const BuildContext& context) {
                                                  return std::make_unique<CudaExecutor>(graph, context);
                                                });
}  // namespace

}  // namespace trainyard::nn
