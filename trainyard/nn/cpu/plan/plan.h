// A graph compiled for one batch size: a list of steps over buffers with planned offsets in memory. Running it forward
// and then backward is one call each (CpuExecutor wraps them as one autograd function).
//
// A step computes one or more nodes of the graph (a convolution; a batch norm with the nodes fused to it; ...).
// PlanBuilder walks the graph once forward, to make the steps, and once backward, to plan each step's gradients; every
// buffer that a step names at such a moment is live then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/cpu/plan/memory_plan.h"
#include "trainyard/nn/cpu/simd/feature_map.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/node_observer.h"
#include "trainyard/nn/reference/bound_layer.h"

namespace trainyard::nn::cpu {

// One pass through a plan: the forward, and the backward that may follow. It has memory of its own, so that several
// forwards can wait for their backwards.
struct Run {
  at::Tensor arena;
  std::vector<std::byte*> pointers;  // by BufferId
  StepRandom random;
  std::vector<at::Tensor> inputs;             // the plan's inputs, by ValueId
  std::vector<std::vector<at::Tensor>> kept;  // by step: tensors of steps that run through ATen
  // By ValueId: an upper bound of the magnitude of all elements. Infinity or NaN: the bound is not known, or an element
  // is not finite.
  std::vector<float> bounds;
  // By sample, in networks that compute in 8 bits: 1 where a value that was rounded to bytes was NaN or infinite.
  std::vector<uint8_t> non_finite;

  // Returns the address of the buffer; null for an invalid one.
  template <typename T = void>
  T* at(BufferId buffer) const {
    return buffer.valid() ? reinterpret_cast<T*>(pointers[static_cast<size_t>(buffer.index)]) : nullptr;
  }
};

class PlanBuilder;
using ValueId = int;  // of PlanBuilder's values

constexpr float kUnbounded = std::numeric_limits<float>::infinity();
constexpr float kRoundingUp = 1.01F;  // for bounds: results may be rounded up, to 8 bits in bfloat16

// The cost of recomputing a step's output, in rising order. kNegligible: one elementwise pass, of which the backward
// reads the input in any case.
enum class RecomputeCost : uint8_t { kNegligible, kCheap, kCostly, kNever };

class PlanStep {
 public:
  virtual ~PlanStep() = default;
  virtual ValueId output() const = 0;
  virtual std::vector<ValueId> inputs() const = 0;  // what forward() reads
  virtual void forward(Run& run) = 0;

  // Returns the bound of the output for run.bounds. Called after forward().
  virtual float bound(const Run& /*run*/) const { return kUnbounded; }

  // Returns the values that backward() reads. They are available, recomputed if needed, when plan_backward() asks for
  // their buffers, which may differ from those of forward().
  virtual std::vector<ValueId> kept() const { return {}; }
  // Returns whether backward() needs its inputs in the same buffers as forward().
  virtual bool pins_inputs() const { return false; }
  virtual RecomputeCost recompute_cost() const { return RecomputeCost::kNever; }
  // Returns whether the output is the concatenation of the inputs. If an input is itself such an output, its inputs may
  // be used instead of it.
  virtual bool joins() const { return false; }
  // Returns the work that recomputes the output, bit for bit, into a buffer from the builder (new_buffer()). Not called
  // when recompute_cost() is kNever. `sources` are available then: the inputs, or the inputs of joined inputs
  // (joins()). Statistics, random numbers and masks of forward() are reused.
  virtual std::function<void(Run&)> plan_recompute(PlanBuilder& /*builder*/, const std::vector<ValueId>& /*sources*/) {
    return {};
  }
  // Plans the backward. Called once, in reverse order of the steps, when the output needs a gradient.
  virtual void plan_backward(PlanBuilder& builder) = 0;
  virtual void backward(Run& run) = 0;

  virtual int64_t packed_bytes() const { return 0; }  // bytes of packed weights, outside of the plan's memory

  int index = 0;           // in Plan::steps()
  std::vector<int> nodes;  // of the graph, in its order
  std::string kernel;      // kernel name for reports: "conv 3x3 winograd"
};

struct PlanOptions {
  int64_t batch = 1;
  bool gradients = true;              // a backward will follow
  std::vector<bool> input_gradients;  // by input: whether its gradient is needed; empty: none
  int threads = 0;                    // of the team that runs it: steps have scratch memory for so many
  bool operator==(const PlanOptions&) const = default;
};

class Plan {
 public:
  // `layers`, by node, run the nodes without a kernel here. The graph, the context, the layers and the parameter set,
  // which must be allocated, have to outlive the plan.
  using Layers = std::vector<std::unique_ptr<BoundLayer>>;
  Plan(const Graph& graph, const BuildContext& context, const Layers& layers, const PlanOptions& options);
  ~Plan();

  // Runs the steps, one thread at a time. Inputs are [N, ...] float, contiguous, in the order of Graph::inputs().
  // Returns the outputs, [N, ...] float, in the order of Graph::outputs. `observer` may be null.
  std::vector<at::Tensor> forward(Run& run, const std::vector<at::Tensor>& inputs, const StepRandom& random,
                                  NodeObserver* observer) const;
  // Runs the backward of the pass in `run`. Takes the outputs' gradients, [N, ...] of any float dtype; an undefined one
  // counts as zero. Gradients go to the context's sink. Returns the inputs' gradients: an undefined tensor for one that
  // was not requested.
  std::vector<at::Tensor> backward(Run& run, const std::vector<at::Tensor>& output_gradients,
                                   NodeObserver* observer) const;

  // Returns false when no gradient was requested, or when nothing before the output needs one.
  bool has_backward(size_t output) const { return outputs_[output].gradient.valid(); }
  bool has_backward() const;  // of some output
  int64_t arena_bytes() const { return memory_.total_bytes(); }
  int64_t packed_bytes() const;
  const PlanOptions& options() const { return options_; }
  const std::vector<std::unique_ptr<PlanStep>>& steps() const { return steps_; }

 private:
  friend class PlanBuilder;
  static constexpr int kNoStep = -1;
  // A buffer that a piece of work fills, for observers.
  struct Made {
    BufferId buffer;
    int64_t elements = 0;
    DataType dtype = DataType::kFloat;
    // Where it is bytes: what they mean, and the shape of a map, whose pad lanes hold anything (plain bytes have no
    // shape).
    ActivationScale scale{};
    MapShape map{};
  };
  struct BackwardEntry {
    int step = kNoStep;  // the step that it belongs to
    std::function<void(Run&)> run;
    std::vector<Made> made;  // gradients
  };
  void bind(Run& run) const;
  static at::Tensor view_of(const Run& run, const Made& made);
  // Runs `work`, and reports it and its results to the observer, which may be null.
  template <typename Work>
  static void observed(Run& run, NodeObserver* observer, const PlanStep* step, NodeRun::Phase phase,
                       std::span<const Made> made, const Work& work);

  PlanOptions options_;
  MemoryPlan memory_;
  std::vector<std::unique_ptr<PlanStep>> steps_;
  std::vector<Made> made_;  // by step: the output of its forward
  std::vector<BackwardEntry> backward_;
  // An input or output of the plan. The gradient's buffer is invalid when the gradient is not needed.
  struct Edge {
    BufferId data, gradient;
    std::vector<int64_t> shape;  // [N, ...]
  };
  std::vector<Edge> inputs_, outputs_;
  size_t value_count_ = 0;
  bool in_8_bits_ = false;  // some values are rounded
};

}  // namespace trainyard::nn::cpu
