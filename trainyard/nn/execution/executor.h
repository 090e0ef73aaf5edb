// Runs graphs. An executor is one way to run a graph (reference, CPU plan, CUDA). It is bound to one replica's
// parameters when it is made. Evaluation, also of averaged weights, makes a second executor.
//
//   BuildContext context{.mode = Mode::kInference, .parameters = &set};
//   auto executor = make_executor("reference", graph, context);   // declares what the graph needs in `set`
//   set.allocate();
//   set.initialize(seed);
//   at::Tensor logits = executor->forward(images, {.step = 0});
//
// A training's towers have a GradientSink in the context, too, in which loss.backward() leaves the gradients.
//
// Graphs with several inputs or outputs are run by name:
//
//   core::NamedTensors outputs = executor->run({{"images", images}, {"depth", depth}}, {.step = 0});
//   outputs["auxiliary"];
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/base/tensors.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/nn/graph/quantization.h"

namespace trainyard::nn {
class GradientSink;   // nn/execution/gradient_sink.h
class KernelChoices;  // nn/execution/kernel_choices.h
class NodeObserver;   // nn/execution/node_observer.h
class SyncBatchNorm;  // nn/execution/sync_batch_norm.h
}  // namespace trainyard::nn

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

enum class Mode { kTraining, kInference };

// How convolutions are computed on the CPU. Winograd's algorithm needs fewer multiplications when it applies (fp32,
// 3x3), and rounds a little more. kAuto measures once which is faster, kByShape follows a fixed rule on the shape.
enum class ConvolutionPolicy { kAuto, kByShape, kDirect, kWinograd };

// Which activations a training discards after the forward pass and recomputes in the backward pass (activation
// checkpointing), to save memory. Results have the same bits.
//
// kNone keeps all but the results of activations on their own, such as GELU. kElementwise also discards the results of
// batch norms, sums, concatenations and the like, which costs little time. kBlocks keeps only some values, between
// which whole blocks of layers lie, and costs about one more forward pass (Chen et al., "Training deep nets with
// sublinear memory cost", 2016).
enum class Recomputation { kNone, kElementwise, kBlocks };

// Choices among kernels. An executor uses those that apply to it.
struct KernelOptions {
  ConvolutionPolicy convolutions = ConvolutionPolicy::kAuto;
  Recomputation recomputation = Recomputation::kNone;
  Fusions fusions{};  // which layers may be fused
  std::shared_ptr<KernelChoices>
      choices{};  // the run's saved choices, which precede measuring and rules; null: not saved
};

// What a layer may know about its executor. Variables only come from parameter() and buffer().
struct BuildContext {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;  // of activations
  Mode mode = Mode::kTraining;
  // Inference only: variables and statistics are constants, with which an executor may precompute (it folds batch norms
  // into convolutions). After a change call ParameterSet::values_changed() before the next forward.
  bool frozen = false;
  KernelOptions kernels{};
  int replica = 0;
  std::string name_prefix{};  // prefix of every name: "generator/"
  ParameterSet* parameters = nullptr;
  GradientSink* gradients = nullptr;  // null: no gradients are computed
  // In training: connects batch norms with those of the other replicas. Null: each normalizes its own batch. CPU only.
  SyncBatchNorm* sync_batch_norm = nullptr;
  // The scales of layers that compute in 8 bits. Null: none does. Needs `frozen` and inference. CPU only.
  std::shared_ptr<const Quantization> quantization{};

  ParameterId parameter(const ParameterSpec& spec) const;
  int buffer(const BufferSpec& spec) const;
};

// The random numbers inside a step depend on this, on the layer's name and on the global index of the sample. For masks
// that do not depend on the division of a batch into micro-steps, leave micro_step 0 and count samples over the batch.
struct StepRandom {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t micro_step = 0;
  int64_t first_sample = 0;  // global index of the batch's first sample in the step
};

// The memory of an executor in addition to the parameter set, in bytes.
struct ExecutorMemory {
  int64_t activations = 0;     // with their gradients and the scratch memory of kernels
  int64_t packed_weights = 0;  // copies of parameters in the layouts of kernels
};

// One way to run a graph. For one thread at a time.
class Executor {
 public:
  virtual ~Executor() = default;

  // Computes all outputs [N, ...], at least fp32, under their names, the main one first. `inputs` are all inputs of the
  // graph by name, [N, ...] of the graph's shapes and any float dtypes, with one N.
  //
  // In training mode the outputs take part in autograd, and their backward writes the sink. One backward follows a
  // forward: it begins at all used outputs, whose losses are summed. An unused output has a gradient of zero.
  // Parameters that ParameterSet::set_trainable() froze get no gradient; an output takes no part in autograd when
  // nothing before it trains and no input requires a gradient.
  //
  // Throws kNotFound for an unknown input, and kInvalidArgument for one that is missing or does not fit.
  virtual core::NamedTensors run(const core::NamedTensors& inputs, const StepRandom& random) = 0;
  // Does the same for a graph of one input, and returns the main output: logits [N, classes] from images [N, C, H, W].
  at::Tensor forward(const at::Tensor& images, const StepRandom& random);

  // Prepares for batches of this size, as the first forward would: compiles and chooses kernels. Call it on the same
  // thread, with the same grad mode. Returns the memory that they need, or nullopt when that is not known beforehand.
  virtual std::optional<ExecutorMemory> prepare(int64_t /*batch*/) { return std::nullopt; }

  const Graph& graph() const { return graph_; }
  const BuildContext& context() const { return context_; }

  // Sets the observer of each node that runs, from the next forward on, including its backward. Null, the default,
  // means none, at no cost. The observer is not owned. Do not call it between a forward and its backward.
  void set_observer(NodeObserver* observer) { observer_ = observer; }

 protected:
  Executor(Graph graph, BuildContext context) : graph_(std::move(graph)), context_(std::move(context)) {}
  NodeObserver* observer() const { return observer_; }
  // Returns the inputs in the order of Graph::inputs(). Throws as run() does.
  [[nodiscard]] std::vector<at::Tensor> checked_inputs(const core::NamedTensors& inputs) const;
  void require_allocated() const;  // of the parameter set; throws kInvalidArgument
  // Throws kUnsupported when a parameter is frozen in training. For executors that cannot leave out gradients;
  // `executor` is their name in the message.
  void require_all_trainable(std::string_view executor) const;
  // Throws kUnsupported for a graph of several inputs or outputs. For executors that cannot run these.
  void require_one_input_and_output(std::string_view executor) const;

 private:
  void check_input(const Node& node, const at::Tensor& given, const at::Tensor& first) const;

  Graph graph_;
  BuildContext context_;
  NodeObserver* observer_ = nullptr;
};

// Directs the calling thread's work to devices as long as it lives. It must end on the thread on which it began, and
// restores what was current before. A default-constructed one means the CPU and changes nothing.
class [[nodiscard]] AcceleratorScope {
 public:
  AcceleratorScope() = default;
  ~AcceleratorScope() { end(); }
  AcceleratorScope(AcceleratorScope&& other) noexcept : guards_(std::move(other.guards_)) {}
  AcceleratorScope& operator=(AcceleratorScope&& other) noexcept {
    if (this != &other) {
      end();
      guards_ = std::move(other.guards_);
    }
    return *this;
  }
  AcceleratorScope(const AcceleratorScope&) = delete;
  AcceleratorScope& operator=(const AcceleratorScope&) = delete;

  // Makes a Guard from `arguments`, whose destructor ends the use. For implementations of Accelerator.
  template <typename Guard, typename... Arguments>
  static AcceleratorScope by(Arguments&&... arguments) {
    AcceleratorScope use;
    use.guards_.push_back(std::make_unique<HeldGuard<Guard>>(std::forward<Arguments>(arguments)...));
    return use;
  }
  // Adds another use, which ends before the existing ones.
  void add(AcceleratorScope other) {
    for (auto& guard : other.guards_) guards_.push_back(std::move(guard));
    other.guards_.clear();
  }
  // Returns whether the thread's work goes to a device.
  [[nodiscard]] bool active() const { return !guards_.empty(); }

 private:
  struct Held {
    virtual ~Held() = default;
  };
  template <typename Guard>
  struct HeldGuard : Held {
    template <typename... Arguments>
    explicit HeldGuard(Arguments&&... arguments) : guard(std::forward<Arguments>(arguments)...) {}
    Guard guard{};
  };
  void end() {
    while (!guards_.empty()) guards_.pop_back();
  }
  std::vector<std::unique_ptr<Held>> guards_;
};

using ExecutorFactory = std::function<std::unique_ptr<Executor>(const Graph&, const BuildContext&)>;
using ExecutorRegistry = core::Registry<ExecutorFactory>;
ExecutorRegistry& executors();

// Returns the name that "auto" selects.
[[nodiscard]] std::string fastest_executor(at::Device device, at::ScalarType dtype);

// Makes an executor by name: "reference", "cpu", "cuda" where it is built in, or "auto" for the fastest one that
// computes in the context's dtype on its device. Throws kNotFound for an unknown name.
std::unique_ptr<Executor> make_executor(const std::string& name, const Graph& graph, const BuildContext& context);

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
