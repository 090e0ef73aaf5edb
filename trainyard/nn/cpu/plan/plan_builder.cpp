#include "trainyard/nn/cpu/plan/plan_builder.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/cpu/plan/recomputation.h"
#include "trainyard/nn/cpu/plan/steps.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/cpu/simd/kernels.h"
#include "trainyard/nn/cpu/simd/thread_scratch.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/graph/fusion.h"

namespace trainyard::nn::cpu {
namespace {

std::vector<int64_t> with_batch(int64_t batch, const Shape& shape) {
  std::vector<int64_t> result{batch};
  result.insert(result.end(), shape.begin(), shape.end());
  return result;
}

constexpr int64_t kImageBlock = 4;  // of the byte image that a network's first convolution reads

MapShape map_shape(int64_t batch, const Shape& logical, int64_t block) {
  return {.batch = batch,
          .channels = logical.at(0),
          .height = logical.size() > 1 ? logical[1] : 1,
          .width = logical.size() > 2 ? logical[2] : 1,
          .block = block};
}

int64_t product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Adds up `terms` into the first of them.
void add_up(const Value& value, const std::vector<void*>& terms) {
  if (value.kind == Value::Kind::kPlain) {
    auto* const sum = static_cast<float*>(terms[0]);
    const int64_t count = product(value.shape);
    for (size_t i = 1; i < terms.size(); ++i) {
      const auto* const term = static_cast<const float*>(terms[i]);
      for (int64_t j = 0; j < count; ++j) sum[j] += term[j];
    }
    return;
  }
  SumForward sum{.shape = value.map, .dtype = value.dtype, .input_count = 2, .output = terms[0]};
  for (size_t i = 1; i < terms.size(); ++i) {
    sum.inputs[0] = terms[0];
    sum.inputs[1] = terms[i];
    sum_forward(sum);
  }
}

// A map of bytes with blocks of so many channels, without its memory.
Value byte_map(int64_t batch, const Shape& logical, int64_t block, const ActivationScale& scale) {
  return {.kind = Value::Kind::kMap,
          .map = map_shape(batch, logical, block),
          .shape = with_batch(batch, logical),
          .dtype = DataType::kUint8,
          .scale = scale};
}

}  // namespace

PlanBuilder::PlanBuilder(Plan& plan, const Graph& graph, const BuildContext& context, const Plan::Layers& layers)
    : plan_(plan), graph_(graph), context_(context), layers_(layers) {
  if (context.quantization != nullptr) quantized_ = quantized_nodes(graph, *context.quantization);
}

// With AVX2 oneDNN has no convolutions in 16 bits. Float convolutions with float maps between them cost less than
// conversions.
DataType PlanBuilder::dtype() const {
  return context_.dtype == at::kBFloat16 && isa() != Isa::kAvx2 ? DataType::kBfloat16 : DataType::kFloat;
}

void PlanBuilder::build() {
  node_values_.assign(graph_.nodes.size(), -1);
  add_inputs();
  const std::vector<Unit> units = fuse(graph_, context_.frozen, context_.kernels.fusions, context_.quantization.get());
  find_last_readers(units);
  for (size_t i = 0; i < units.size();) {
    const std::span<const Unit> rest = std::span(units).subspan(i);
    const size_t joined = context_.frozen ? make_inverted_residual(*this, rest) : make_norm_depthwise(*this, rest);
    if (joined == 0) make_step(*this, units[i]);
    i += std::max<size_t>(joined, 1);
    note_rounding(units[i - 1].tail());
    unit_ = static_cast<int>(i);
  }
  add_outputs();
  if (plan_.has_backward()) plan_backward();
  plan_.value_count_ = values_.size();
  plan_.memory_.place();
}

void PlanBuilder::set_value(int node, ValueId value) {
  ValueId& held = node_values_[static_cast<size_t>(node)];
  if (held >= 0) {
    throw core::Error(core::ErrorCode::kInternal, {.problem = "a layer is computed by two steps",
                                                   .where = graph_.nodes[static_cast<size_t>(node)].name});
  }
  held = value;
}

// Inputs are the first values: Run::inputs has them by ValueId.
void PlanBuilder::add_inputs() {
  const std::vector<bool>& wanted = options().input_gradients;
  for (const int node : graph_.inputs()) {
    const size_t index = plan_.inputs_.size();
    const bool needs_gradient = index < wanted.size() && wanted[index] && options().gradients;
    // The caller's tensor, outside of the arena.
    const ValueId id = add_value({.kind = Value::Kind::kPlain,
                                  .shape = with_batch(options().batch, graph_.nodes[static_cast<size_t>(node)].shape),
                                  .needs_gradient = needs_gradient},
                                 0);
    plan_.inputs_.push_back({.data = value(id).data, .shape = value(id).shape});
    set_value(node, id);
    note_rounding(node);
  }
}

// All outputs are there at the end of the forward, and all their gradients at the start of the backward.
void PlanBuilder::add_outputs() {
  std::vector<ValueId> ids;
  for (const GraphOutput& output : graph_.outputs) ids.push_back(plain_of(output.node));
  for (const ValueId id : ids) {
    use_value(id);
    plan_.outputs_.push_back({.data = value(id).data, .shape = value(id).shape});
  }
  ++moment_;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!needs_gradient(ids[i])) continue;
    const BufferId gradient = plan_.outputs_[i].gradient = acquire(bytes_of(ids[i]));
    give_gradient(ids[i], gradient);
  }
}

// Recomputes the sources of the value first. Each value is recomputed once, and kept until its last use.
void PlanBuilder::recompute(ValueId id) {
  if (!discarded_[static_cast<size_t>(id)]) return;
  discarded_[static_cast<size_t>(id)] = false;
  const int producer = producers_[static_cast<size_t>(id)];
  PlanStep* const step = plan_.steps_[static_cast<size_t>(producer)].get();
  std::vector<ValueId> sources;
  add_sources(*step, sources);
  for (ValueId source : sources) recompute(source);
  ++moment_;
  plan_.backward_.push_back({producer, step->plan_recompute(*this, sources), {}});
}

// Where a concatenation reads another one that is discarded, the parts of that one are used instead: recomputing all
// the joined values of a dense block would need more memory than was saved.
void PlanBuilder::add_sources(const PlanStep& step, std::vector<ValueId>& sources) const {
  for (ValueId input : step.inputs()) {
    const int producer = producers_[static_cast<size_t>(input)];
    const bool joined =
        step.joins() && discarded_[static_cast<size_t>(input)] && plan_.steps_[static_cast<size_t>(producer)]->joins();
    if (joined) {
      add_sources(*plan_.steps_[static_cast<size_t>(producer)], sources);
    } else {
      sources.push_back(input);
    }
  }
}

void PlanBuilder::plan_backward() {
  producers_.resize(values_.size(), Plan::kNoStep);
  for (const auto& step : plan_.steps_) producers_[static_cast<size_t>(step->output())] = step->index;
  std::vector<int64_t> bytes;
  for (ValueId id = 0; id < static_cast<ValueId>(values_.size()); ++id) bytes.push_back(bytes_of(id));
  discarded_ = values_to_discard(plan_.steps_, bytes, context_.kernels.recomputation);
  for (int step = static_cast<int>(plan_.steps_.size()) - 1; step >= 0; --step) {
    PlanStep* const planned = plan_.steps_[static_cast<size_t>(step)].get();
    if (!needs_gradient(planned->output())) continue;  // nothing trains in it, nor below it
    if (!value(planned->output()).gradients.empty()) {
      for (ValueId id : planned->kept()) recompute(id);
    }
    ++moment_;
    given_.clear();
    taken_.clear();
    planned->plan_backward(*this);
    plan_.backward_.push_back({step, [planned](Run& run) { planned->backward(run); }, given_});
  }
  ++moment_;
  for (size_t i = 0; i < plan_.inputs_.size(); ++i) {
    if (!needs_gradient(static_cast<ValueId>(i))) continue;
    const std::vector<BufferId> gradients = take_gradients(static_cast<ValueId>(i), 1);
    if (!gradients.empty()) plan_.inputs_[i].gradient = gradients[0];
  }
}

ValueId PlanBuilder::add_value(Value value, int64_t bytes) {
  value.data = acquire(bytes);
  values_.push_back(std::move(value));
  converted_.emplace_back().fill(-1);
  return static_cast<ValueId>(values_.size()) - 1;
}

ValueId PlanBuilder::new_map(const Shape& logical, bool needs_gradient) {
  const MapShape map = map_shape(options().batch, logical, channel_block());
  return add_value({.kind = Value::Kind::kMap,
                    .map = map,
                    .shape = with_batch(options().batch, logical),
                    .dtype = dtype(),
                    .needs_gradient = needs_gradient && options().gradients},
                   map.elements() * size_of(dtype()));
}

ValueId PlanBuilder::new_plain(const Shape& logical, bool needs_gradient) {
  std::vector<int64_t> shape = with_batch(options().batch, logical);
  const int64_t bytes = product(shape) * size_of(DataType::kFloat);
  return add_value(
      {.kind = Value::Kind::kPlain, .shape = std::move(shape), .needs_gradient = needs_gradient && options().gradients},
      bytes);
}

ValueId PlanBuilder::new_byte_map(const Shape& logical, const ActivationScale& scale) {
  const Value value = byte_map(options().batch, logical, channel_block(), scale);
  return add_value(value, value.map.elements());
}

ValueId PlanBuilder::new_byte_image(const Shape& logical, const ActivationScale& scale) {
  const Value value = byte_map(options().batch, logical, kImageBlock, scale);
  return add_value(value, value.map.elements());
}

ValueId PlanBuilder::new_byte_plain(const Shape& logical, const ActivationScale& scale) {
  std::vector<int64_t> shape = with_batch(options().batch, logical);
  const int64_t bytes = product(shape);
  return add_value({.kind = Value::Kind::kPlain, .shape = std::move(shape), .dtype = DataType::kUint8, .scale = scale},
                   bytes);
}

ValueId PlanBuilder::new_output(const Unit& unit) {
  const Shape& shape = graph_.nodes[static_cast<size_t>(unit.tail())].shape;
  const ActivationScale* const scale = output_scale(unit.tail());
  const bool map = shape.size() == 3;
  if (scale == nullptr) return map ? new_map(shape, false) : new_plain(shape, false);
  return map ? new_byte_map(shape, *scale) : new_byte_plain(shape, *scale);
}

const ActivationScale* PlanBuilder::output_scale(int node) const {
  return quantized_ ? quantized_->activations[static_cast<size_t>(node)] : nullptr;
}

const std::vector<float>* PlanBuilder::weight_scales(int node) const {
  return quantized_ ? quantized_->weights[static_cast<size_t>(node)] : nullptr;
}

std::optional<ActivationScale> PlanBuilder::scale_of(int node) const {
  const Value& v = value(value_of(node));
  return v.rounds || v.dtype == DataType::kUint8 ? std::optional(v.scale) : std::nullopt;
}

// A step in float has computed a value that the quantization rounds.
void PlanBuilder::note_rounding(int node) {
  const ActivationScale* const scale = output_scale(node);
  Value& made = values_[static_cast<size_t>(value_of(node))];
  if (scale == nullptr || made.dtype == DataType::kUint8) return;
  made.scale = *scale;
  made.rounds = true;
}

// Returns the node whose output this is: dropout and stochastic depth hand their input on in inference.
int PlanBuilder::origin(int node) const {
  const Node& n = graph_.nodes[static_cast<size_t>(node)];
  const bool identity = std::holds_alternative<Dropout>(n.op) || std::holds_alternative<StochasticDepth>(n.op);
  return identity ? origin(n.inputs[0]) : node;
}

void PlanBuilder::find_last_readers(const std::vector<Unit>& units) {
  last_readers_.assign(graph_.nodes.size(), -1);
  for (size_t i = 0; i < units.size(); ++i) {
    for (int node : units[i].nodes) {
      for (int input : graph_.nodes[static_cast<size_t>(node)].inputs) {
        last_readers_[static_cast<size_t>(origin(input))] = static_cast<int>(i);
      }
    }
  }
  for (const GraphOutput& output : graph_.outputs) {
    last_readers_[static_cast<size_t>(origin(output.node))] = static_cast<int>(units.size());
  }
}

bool PlanBuilder::is_last_reader(int node) const {
  return !options().gradients && last_readers_[static_cast<size_t>(origin(node))] <= unit_;
}

ValueId PlanBuilder::overwrite_map(ValueId id, const ActivationScale& scale) {
  Value overwritten = value(id);
  overwritten.rounds = false;
  overwritten.scale = scale;
  values_.push_back(std::move(overwritten));
  converted_.emplace_back().fill(-1);
  use_value(id);
  return static_cast<ValueId>(values_.size()) - 1;
}

int64_t PlanBuilder::bytes_of(ValueId id) const {
  const Value& v = value(id);
  return (v.kind == Value::Kind::kMap ? v.map.elements() : product(v.shape)) * size_of(v.dtype);
}

Plan::Made PlanBuilder::made(ValueId id, BufferId buffer) const {
  const Value& v = value(id);
  Plan::Made made{.buffer = buffer, .elements = bytes_of(id) / size_of(v.dtype), .dtype = v.dtype};
  if (v.dtype != DataType::kUint8) return made;
  made.scale = v.scale;
  if (v.kind == Value::Kind::kMap) made.map = v.map;
  return made;
}

PlanBuilder::Form PlanBuilder::form_of(const Value& value) {
  if (value.dtype != DataType::kUint8) return value.kind == Value::Kind::kMap ? Form::kMap : Form::kPlain;
  if (value.kind == Value::Kind::kPlain) return Form::kBytePlain;
  return value.map.block == kImageBlock ? Form::kByteImage : Form::kByteMap;
}

ValueId PlanBuilder::convert(ValueId id, int node, Form form) {
  const bool to_floats = form == Form::kMap || form == Form::kPlain;
  if (form_of(value(id)) == form && !(to_floats && value(id).rounds)) return id;
  if (const ValueId known = converted_[static_cast<size_t>(id)][static_cast<size_t>(form)]; known >= 0) return known;
  ValueId result = -1;
  if (to_floats && value(id).rounds) {
    const bool map = value(id).shape.size() == 4;
    result = convert(convert(id, node, map ? Form::kByteMap : Form::kBytePlain), node, form);
  } else {
    result = make_form(id, node, form);
  }
  return converted_[static_cast<size_t>(id)][static_cast<size_t>(form)] = result;
}

ValueId PlanBuilder::make_form(ValueId id, int node, Form form) {
  const Shape& shape = graph_.nodes[static_cast<size_t>(node)].shape;
  const ActivationScale scale = value(id).scale;
  if (form == Form::kByteMap) return make_byte_conversion(*this, id, new_byte_map(shape, scale));
  if (form == Form::kByteImage) return make_byte_conversion(*this, id, new_byte_image(shape, scale));
  if (form == Form::kBytePlain) return make_byte_conversion(*this, id, new_byte_plain(shape, scale));
  if (value(id).dtype != DataType::kUint8) {
    return make_conversion(*this, id, form == Form::kMap ? Value::Kind::kMap : Value::Kind::kPlain, node);
  }
  return make_byte_conversion(*this, id, form == Form::kMap ? new_map(shape, false) : new_plain(shape, false));
}

BufferId PlanBuilder::acquire(int64_t bytes) {
  const BufferId buffer = plan_.memory_.add(bytes);
  holders_.resize(static_cast<size_t>(plan_.memory_.size()));
  use(buffer);
  return buffer;
}

BufferId PlanBuilder::scratch(int64_t bytes) {
  constexpr int64_t kMost = int64_t{8} << 20;  // bytes, not counting the distance of the threads' parts
  if (bytes <= 0) return {};
  if (bytes > kMost + options().threads * thread_stride(1)) return acquire(bytes);
  if (!scratch_.valid()) {
    scratch_ = acquire(bytes);
    plan_.memory_.use(scratch_, 0);
  }
  plan_.memory_.enlarge(scratch_, bytes);
  use(scratch_);
  return scratch_;
}

void PlanBuilder::use(BufferId buffer) {
  if (buffer.valid()) plan_.memory_.use(buffer, moment_);
}

std::vector<BufferId> PlanBuilder::take_gradients(ValueId id, int most) {
  Value& taken = values_[static_cast<size_t>(id)];
  std::vector<BufferId> gradients = std::exchange(taken.gradients, {});
  for (BufferId gradient : gradients) {
    use(gradient);
    --holders_[static_cast<size_t>(gradient.index)];
    taken_.push_back(gradient);
  }
  if (gradients.size() <= static_cast<size_t>(most)) return gradients;

  // Those beyond `most` are added to one that no other value uses, or to a copy, before the step that takes them. A sum
  // that was given several times to this value is read again after the first addition.
  const auto own = std::find_if(gradients.begin(), gradients.end(), [&](BufferId g) {
    return may_overwrite(g) && std::count(gradients.begin(), gradients.end(), g) == 1;
  });
  BufferId sum;
  if (own != gradients.end()) {
    std::iter_swap(gradients.begin(), own);
    sum = gradients.front();
  } else {
    sum = acquire(bytes_of(id));
  }
  const std::vector<BufferId> terms(gradients.begin() + (own != gradients.end() ? 1 : 0), gradients.end() - (most - 1));
  const bool copy = own == gradients.end();
  plan_.backward_.push_back({Plan::kNoStep,
                             [value = taken, sum, terms, copy, bytes = bytes_of(id)](Run& run) {
                               std::vector<void*> pointers{run.at(sum)};
                               for (BufferId term : terms) pointers.push_back(run.at(term));
                               if (copy) {
                                 std::copy_n(run.at<std::byte>(terms[0]), bytes, run.at<std::byte>(sum));
                                 pointers.erase(pointers.begin() + 1);
                               }
                               add_up(value, pointers);
                             },
                             {made(id, sum)}});
  std::vector<BufferId> result{sum};
  result.insert(result.end(), gradients.end() - (most - 1), gradients.end());
  return result;
}

PlanBuilder::Given PlanBuilder::give_gradient(ValueId id, bool can_accumulate) {
  Value& given = values_[static_cast<size_t>(id)];
  if (can_accumulate) {
    for (BufferId gradient : given.gradients) {
      if (holders_[static_cast<size_t>(gradient.index)] != 1) continue;
      // A pool that added into the gradient that it reads would read what it has added: x + pool(x).
      if (std::find(taken_.begin(), taken_.end(), gradient) != taken_.end()) continue;
      use(gradient);
      given_.push_back(made(id, gradient));
      return {gradient, true};
    }
  }
  const BufferId buffer = acquire(bytes_of(id));
  give_gradient(id, buffer);
  return {buffer, false};
}

PlanBuilder::Given PlanBuilder::give_gradient_if_needed(ValueId id) {
  if (needs_gradient(id)) return give_gradient(id, true);
  return {acquire(bytes_of(id))};
}

void PlanBuilder::give_gradient(ValueId id, BufferId buffer) {
  use(buffer);
  given_.push_back(made(id, buffer));
  values_[static_cast<size_t>(id)].gradients.push_back(buffer);
  ++holders_[static_cast<size_t>(buffer.index)];
}

ParameterId PlanBuilder::parameter(const Node& node, size_t index) const {
  return context_.parameter(node.parameters.at(index));
}

int PlanBuilder::buffer(const Node& node, size_t index) const {
  return context_.buffer(node.buffers.at(index));
}

void PlanBuilder::add_step(std::unique_ptr<PlanStep> step, std::vector<int> nodes, std::string kernel) {
  step->nodes = std::move(nodes);
  step->kernel = std::move(kernel);
  step->index = static_cast<int>(plan_.steps_.size());
  plan_.made_.push_back(made(step->output(), value(step->output()).data));
  plan_.steps_.push_back(std::move(step));
  ++moment_;
}

}  // namespace trainyard::nn::cpu
