// A graph compiled for one batch size: a list of steps over buffers whose place in memory is known beforehand. Running
// it forward and then backward is one call each (CpuExecutor wraps them as one autograd function).
//
// A step stands for one or more nodes of the graph (convolution; batch norm with what follows it; ...). PlanBuilder
// walks the graph once forward, making the steps, and once backward, asking each for the gradients that it takes and
// gives; every buffer that a step names at such a moment is alive then.
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
  std::vector<at::Tensor> inputs;             // what the plan's inputs point to, by ValueId
  std::vector<std::vector<at::Tensor>> kept;  // by step: tensors of steps that run through ATen
  // By ValueId: no element has a larger magnitude. Infinity or NaN: the bound is not known, or an element is not
  // finite.
  std::vector<float> bounds;

  // Returns where the buffer lies; null for an invalid one.
  template <typename T = void>
  T* at(BufferId buffer) const {
    return buffer.valid() ? reinterpret_cast<T*>(pointers[static_cast<size_t>(buffer.index)]) : nullptr;
  }
};

class PlanBuilder;
using ValueId = int;  // of PlanBuilder's values

constexpr float kUnbounded = std::numeric_limits<float>::infinity();
constexpr float kRoundingUp = 1.01F;  // for bounds: results may be rounded up, to 8 bits in bfloat16

// What it costs to make a step's output again.
enum class RecomputeCost : uint8_t { kNever, kCheap, kCostly };

class PlanStep {
 public:
  virtual ~PlanStep() = default;
  virtual ValueId output() const = 0;
  virtual std::vector<ValueId> inputs() const = 0;  // what forward() reads
  virtual void forward(Run& run) = 0;

  // Returns what to enter in run.bounds for the output. Called after forward().
  virtual float bound(const Run& /*run*/) const { return kUnbounded; }

  // Returns the values that backward() reads. They are there again when plan_backward() asks for their place, which may
  // differ from the place that forward() had them in.
  virtual std::vector<ValueId> kept() const { return {}; }
  // Returns whether backward() needs its inputs in the place where forward() had them.
  virtual bool pins_inputs() const { return false; }
  virtual RecomputeCost recompute_cost() const { return RecomputeCost::kNever; }
  // Returns whether the output is nothing but the inputs one behind the other. If an input is such an output itself,
  // its own inputs serve as well.
  virtual bool joins() const { return false; }
  // Returns the work that makes the output again, bit for bit, in a place that the builder gives (new_buffer()). Called
  // unless recompute_cost() is kNever, when `sources` are there: the inputs, or what serves as well (joins()).
  // Statistics, random numbers and masks stay as forward() left them.
  virtual std::function<void(Run&)> plan_recompute(PlanBuilder& /*builder*/, const std::vector<ValueId>& /*sources*/) {
    return {};
  }
  // Called once, in reverse order of the steps, where the output needs a gradient.
  virtual void plan_backward(PlanBuilder& builder) = 0;
  virtual void backward(Run& run) = 0;

  virtual int64_t packed_bytes() const { return 0; }  // of weights, outside the plan's memory

  int index = 0;           // in Plan::steps()
  std::vector<int> nodes;  // of the graph, in its order
  std::string kernel;      // what runs, for people: "conv 3x3 winograd"
};

struct PlanOptions {
  int64_t batch = 1;
  bool gradients = true;              // a backward will follow
  std::vector<bool> input_gradients;  // by input: its gradient is wanted too; empty: no input's
  bool operator==(const PlanOptions&) const = default;
};

class Plan {
 public:
  // `layers`, by node, run what has no kernel here. The graph, the context, the layers and the parameter set, which
  // must be allocated, have to outlive the plan.
  using Layers = std::vector<std::unique_ptr<BoundLayer>>;
  Plan(const Graph& graph, const BuildContext& context, const Layers& layers, const PlanOptions& options);
  ~Plan();

  // Runs the steps, one thread at a time. Inputs are [N, ...] float, contiguous, in the order of Graph::inputs().
  // Returns the outputs, [N, ...] float, in the order of Graph::outputs. `observer` may be null.
  std::vector<at::Tensor> forward(Run& run, const std::vector<at::Tensor>& inputs, const StepRandom& random,
                                  NodeObserver* observer) const;
  // Runs the backward of the pass in `run`. Takes the outputs' gradients, [N, ...] of any float dtype; an undefined one
  // counts as zero. Gradients go to the context's sink. Returns the inputs' gradients: an undefined tensor for one that
  // was not asked for.
  std::vector<at::Tensor> backward(Run& run, const std::vector<at::Tensor>& output_gradients,
                                   NodeObserver* observer) const;

  // Returns false where no gradient was asked for, or where nothing before the output wants one.
  bool has_backward(size_t output) const { return outputs_[output].gradient.valid(); }
  bool has_backward() const;  // of some output
  int64_t arena_bytes() const { return memory_.total_bytes(); }
  int64_t packed_bytes() const;
  const PlanOptions& options() const { return options_; }
  const std::vector<std::unique_ptr<PlanStep>>& steps() const { return steps_; }

 private:
  friend class PlanBuilder;
  static constexpr int kNoStep = -1;
  // A buffer that a piece of work fills, for observers that look into it.
  struct Made {
    BufferId buffer;
    int64_t elements = 0;
    DataType dtype = DataType::kFloat;
  };
  struct BackwardEntry {
    int step = kNoStep;  // the step that it belongs to
    std::function<void(Run&)> run;
    std::vector<Made> made;  // gradients
  };
  void bind(Run& run) const;
  // Runs `work`, and tells the observer, which may be null, what it was and what it made.
  template <typename Work>
  static void observed(Run& run, NodeObserver* observer, const PlanStep* step, NodeRun::Phase phase,
                       std::span<const Made> made, const Work& work);

  PlanOptions options_;
  MemoryPlan memory_;
  std::vector<std::unique_ptr<PlanStep>> steps_;
  std::vector<Made> made_;  // by step, where its forward leaves its output
  std::vector<BackwardEntry> backward_;
  // A value at the plan's edge. The gradient's buffer is not valid where nobody wants it.
  struct Edge {
    BufferId data, gradient;
    std::vector<int64_t> shape;  // [N, ...]
  };
  std::vector<Edge> inputs_, outputs_;
  size_t value_count_ = 0;
};

}  // namespace trainyard::nn::cpu
