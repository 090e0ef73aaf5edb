// Turns a graph into the steps of a plan. Steps use it in two phases: their makers (make_*, while it walks the graph
// forward) take input values and make output values; plan_backward() takes the gradients of outputs and gives those of
// inputs.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trainyard/nn/cpu/plan/plan.h"
#include "trainyard/nn/cpu/simd/arguments.h"
#include "trainyard/nn/graph/fusion.h"
#include "trainyard/nn/graph/quantized_nodes.h"

namespace trainyard::nn::cpu {

// A node's output in this plan.
struct Value {
  enum class Kind { kMap, kPlain };
  Kind kind = Kind::kMap;
  MapShape map;                       // of a kMap
  std::vector<int64_t> shape;         // [N, ...] logical
  DataType dtype = DataType::kFloat;  // kUint8: `scale` says what the bytes are
  ActivationScale scale;
  // A float value whose readers get it rounded to `scale`: the conversion to bytes rounds it, floats are made of those.
  bool rounds = false;
  BufferId data;
  bool needs_gradient = false;
  std::vector<BufferId> gradients;  // contributions that are still to be summed
};

class PlanBuilder {
 public:
  PlanBuilder(Plan& plan, const Graph& graph, const BuildContext& context, const Plan::Layers& layers);
  void build();

  const Graph& graph() const { return graph_; }
  const BuildContext& context() const { return context_; }
  const PlanOptions& options() const { return plan_.options(); }
  DataType dtype() const;  // of maps
  bool training() const { return context_.mode == Mode::kTraining; }
  // Return whether this plan computes the parameter's gradient, and whether it computes that of some parameter of the
  // node: the plan has gradients, and ParameterSet::trainable() returns true.
  bool trains(ParameterId id) const { return options().gradients && context_.parameters->trainable(id); }
  bool trains(const Node& node) const { return options().gradients && layer(node).trains(); }

  // Values. Each call that returns a buffer keeps it live at the current moment.
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  ValueId new_map(const Shape& logical, bool needs_gradient);
  ValueId new_plain(const Shape& logical, bool needs_gradient);  // float, contiguous
  // Return the output of a node as a map or as a plain tensor of floats, converted if it is something else.
  ValueId map_of(int node) { return convert(value_of(node), node, Form::kMap); }
  ValueId plain_of(int node) { return convert(value_of(node), node, Form::kPlain); }
  // Returns the output of a node, unconverted.
  ValueId value_of(int node) const { return node_values_[static_cast<size_t>(node)]; }
  // Throws where the node has a value: two steps that compute it would take twice the time unnoticed.
  void set_value(int node, ValueId value);
  // Returns whether it is an input of the graph, which is outside of the plan's memory: [N, ...] float, contiguous.
  bool is_input(ValueId id) const { return id < static_cast<ValueId>(plan_.inputs_.size()); }
  // Returns whether no later unit reads the node's output. False in plans with gradients, where a backward may.
  bool is_last_reader(int node) const;
  // Return a new map of the same type, of bytes with `scale` too, in the memory of `id`, which is not read any more.
  ValueId overwrite_map(ValueId id) { return overwrite_map(id, value(id).scale); }
  ValueId overwrite_map(ValueId id, const ActivationScale& scale);

  // Networks that compute in 8 bits. Returns the scale of the bytes that byte_map_of() and the like return for a node;
  // null when it is float.
  std::optional<ActivationScale> scale_of(int node) const;
  // Return the scales that the quantization has for a node; null for none.
  const ActivationScale* output_scale(int node) const;
  const std::vector<float>* weight_scales(int node) const;
  // Return the output of a node that scale_of() has a scale for: as a byte map, as an image [batch][height][width][4]
  // of at most 4 channels if it is a plain tensor of floats, and as plain bytes [N, ...].
  ValueId byte_map_of(int node) { return convert(value_of(node), node, Form::kByteMap); }
  ValueId byte_image_of(int node) { return convert(value_of(node), node, Form::kByteImage); }
  ValueId bytes_of_vector(int node) { return convert(value_of(node), node, Form::kBytePlain); }
  ValueId new_byte_map(const Shape& logical, const ActivationScale& scale);
  ValueId new_byte_image(const Shape& logical, const ActivationScale& scale);
  ValueId new_byte_plain(const Shape& logical, const ActivationScale& scale);
  // Returns a new value for the output of a unit that computes in 8 bits: bytes if its last node has a scale, else
  // floats; a map for [C, H, W], else plain.
  ValueId new_output(const Unit& unit);

  // Adds a buffer to the plan's memory.
  BufferId acquire(int64_t bytes);
  // Returns a buffer with at least so many bytes for the scratch memory of a kernel. The kernels that ask for it share
  // one, so that each thread's part stays where it is (simd/thread_scratch.h), but for those that need much more than
  // a core's cache holds: the memory of these serves others between their runs.
  BufferId scratch(int64_t bytes);
  void use(BufferId buffer);
  void use_value(ValueId id) { use(value(id).data); }

  // Returns the current buffer of the value, and keeps it live.
  BufferId data(ValueId id) {
    use_value(id);
    return value(id).data;
  }
  // Returns a new buffer, which is the value's from now on. For plan_recompute().
  BufferId new_buffer(ValueId id) { return values_[static_cast<size_t>(id)].data = acquire(bytes_of(id)); }

  // Gradients, for plan_backward(). Takes the contributions to a value's gradient, at most `most` of them: if there are
  // more, some are summed before the step that takes them. The caller may write into one that may_overwrite() allows.
  std::vector<BufferId> take_gradients(ValueId id, int most);
  bool may_overwrite(BufferId gradient) const { return holders_[static_cast<size_t>(gradient.index)] == 0; }
  struct Given {
    BufferId buffer;
    bool accumulate = false;  // add to its content
  };
  // Returns a buffer for a contribution to the gradient of `id`: a new one or, for a step that can add, one that holds
  // another contribution.
  Given give_gradient(ValueId id, bool can_accumulate);
  // For kernels that always compute this gradient. Returns a buffer as above (the kernel can add), or scratch memory of
  // the step when the gradient is not needed.
  Given give_gradient_if_needed(ValueId id);
  // Makes an existing buffer a contribution. It is shared: it must not be overwritten while two values need it.
  void give_gradient(ValueId id, BufferId buffer);
  bool needs_gradient(ValueId id) const { return value(id).needs_gradient; }
  int64_t bytes_of(ValueId id) const;

  // Return a parameter and a buffer of a node, by position in Node::parameters and Node::buffers.
  ParameterId parameter(const Node& node, size_t index) const;
  int buffer(const Node& node, size_t index) const;

  // Returns the layer that runs the node through ATen.
  BoundLayer& layer(const Node& node) const { return *layers_[static_cast<size_t>(node.id)]; }

  void add_step(std::unique_ptr<PlanStep> step, std::vector<int> nodes, std::string kernel);

 private:
  void add_inputs();
  void add_outputs();
  void plan_backward();
  void recompute(ValueId id);
  Plan::Made made(ValueId id, BufferId buffer) const;
  void add_sources(const PlanStep& step, std::vector<ValueId>& sources) const;
  // The layouts that a value may be converted to.
  enum class Form : uint8_t { kMap, kPlain, kByteMap, kByteImage, kBytePlain };
  static constexpr size_t kForms = 5;
  static Form form_of(const Value& value);
  // `node` has the value's shape.
  ValueId convert(ValueId id, int node, Form form);
  ValueId make_form(ValueId id, int node, Form form);
  void note_rounding(int node);
  ValueId add_value(Value value, int64_t bytes);
  void find_last_readers(const std::vector<Unit>& units);
  int origin(int node) const;

  Plan& plan_;
  const Graph& graph_;
  const BuildContext& context_;
  const Plan::Layers& layers_;
  std::vector<Value> values_;
  std::vector<ValueId> node_values_;
  std::vector<std::array<ValueId, kForms>> converted_;  // by ValueId and Form; -1: not made yet
  std::optional<QuantizedNodes> quantized_;
  std::vector<bool> discarded_;    // by ValueId, in the backward: whether it must be recomputed before it is used
  std::vector<int> producers_;     // by ValueId: the step; kNoStep for inputs
  std::vector<Plan::Made> given_;  // gradients of the step whose backward is being planned
  std::vector<BufferId> taken_;    // contributions that this step has taken
  std::vector<int>
      holders_;  // by BufferId: number of values whose gradient it contributes to and that have not taken it yet
  std::vector<int> last_readers_;  // by node that is an origin(): the last unit that reads its output
  BufferId scratch_;               // which kernels share
  int unit_ = 0;                   // the current unit
  int moment_ = 0;
};

}  // namespace trainyard::nn::cpu
