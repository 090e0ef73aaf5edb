#include "trainyard/optim/optimizers/optimizer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/optim/optimizers/complete_gradients.h"
#include "trainyard/optim/optimizers/host_update.h"
#include "trainyard/optim/optimizers/layer_decay.h"
#include "trainyard/optim/optimizers/norm_clipper.h"
#include "trainyard/optim/step/device_kernels.h"
#include "trainyard/optim/step/segment_parts.h"

namespace trainyard::optim {

using core::Error;
using core::ErrorCode;

namespace {

constexpr const char *kDelayedGradient = "delayed_gradient", *kSlow = "slow", *kLookaheadCount = "lookahead_count";

// Moves the slow weights of the trainable parameters towards the weights, and sets these to them.
void move_slow_weights(const Optimizer& optimizer, const at::Tensor& slow, double alpha) {
  const at::Tensor values = optimizer.parameters().values();
  for (const size_t i : optimizer.own()) {
    if (!optimizer.trainable(i)) continue;
    const nn::Segment& segment = optimizer.parameters().segments()[i];
    const auto part = [&segment](const at::Tensor& all) { return all.narrow(0, segment.offset, segment.count); };
    // By element, so that the bits do not depend on the number of threads.
    if (alpha > 0) part(slow).add_(part(values).sub(part(slow)).mul_(alpha));
    part(values).copy_(part(slow));
  }
}

}  // namespace

OptimizerRegistry& optimizers() {
  static OptimizerRegistry registry("optimizer", {{"momentum", "tf_momentum"},
                                                  {"nesterov", "tf_nesterov"},
                                                  {"rmsprop", "tf_rmsprop"},
                                                  {"adam", "tf_adam"},
                                                  {"adamw", "torch_adamw"},
                                                  {"nadam", "torch_nadam"}});
  return registry;
}

Optimizer::Optimizer(nn::ParameterSet& parameters, const OptimizerOptions& options,
                     std::vector<OptimizerNumber> numbers)
    : Optimizer(parameters, options, options.decoupled_decay ? DecayForm::kDecoupled : DecayForm::kCoupled,
                std::move(numbers)) {}

Optimizer::Optimizer(nn::ParameterSet& parameters, OptimizerOptions options, DecayForm decay_form,
                     std::vector<OptimizerNumber> numbers)
    : parameters_(&parameters), options_(std::move(options)), decay_form_(decay_form), declared_(std::move(numbers)) {
  options_.validate();
  options_.numbers = complete_numbers(declared_, options_.numbers);
  const auto adapts = options_.numbers.find("adapt_undecayed");
  adapts_undecayed_ = adapts != options_.numbers.end() && adapts->second != 0;
  if (!parameters.allocated()) {
    throw Error(ErrorCode::kInvalidArgument, "an optimizer needs a parameter set that is allocated");
  }
  const at::Tensor values = parameters.values();
  if (values.scalar_type() != at::kFloat && values.scalar_type() != at::kDouble) {
    throw Error(ErrorCode::kUnsupported, {.problem = "optimizers work on float and double parameters",
                                          .actual = at::toString(values.scalar_type())});
  }
  device_ = device_kernels(values.device());
  owned_.assign(parameters.segments().size(), options_.parameters.empty());
  for (const std::string& pattern : options_.parameters) {
    for_each(pattern, [&](size_t segment) { owned_[segment] = true; });
  }
  for (size_t i = 0; i < owned_.size(); ++i) {
    if (owned_[i]) own_.push_back(i);
  }
  parts_ = std::make_unique<SegmentPartTable>(segment_part_table(own_segments(), values.device()));
  if (options_.norm_clip) norm_clipper_ = std::make_unique<NormClipper>(*options_.norm_clip, parameters);
  if (!options_.groups.empty()) require_host_memory("groups of parameters");
  if (options_.layer_decay != 1) require_host_memory("learning rates by layers");
  if (!options_.regularization.empty()) require_host_memory("terms of regularization beside weight decay");
  part_ = {.begin = 0, .end = parameters.total()};
  decoupled_.assign(owned_.size(), false);
  set_groups();
  if (options_.lookahead) {
    require_host_memory("Lookahead's slow weights");
    slots_.push_back({kSlow, at::zeros_like(values)});
    lookahead_count_ = at::zeros({1}, values.options().dtype(at::kDouble));
  }
  if (options_.delayed) slots_.push_back({kDelayedGradient, at::zeros_like(values)});
}

Optimizer::~Optimizer() = default;

template <typename Visit>
void Optimizer::for_each(const std::string& pattern, Visit visit) const {
  const nn::Segment* const first = parameters_->segments().data();
  for (const nn::ParameterId id : parameters_->matching(pattern)) {
    visit(static_cast<size_t>(&parameters_->segment(id) - first));
  }
}

void Optimizer::require_host_memory(std::string_view what) const {
  if (device_ == nullptr) return;
  throw Error(ErrorCode::kUnsupported, {.problem = fmt::format("{} do not work on a device yet", what),
                                        .where = parameters_->values().device().str(),
                                        .expected = "parameters in the host's memory"});
}

std::vector<nn::Segment> Optimizer::own_segments() const {
  std::vector<nn::Segment> own;
  for (const size_t i : own_) own.push_back(parameters_->segments()[i]);
  return own;
}

void Optimizer::set_groups() {
  const std::vector<nn::Segment>& segments = parameters_->segments();
  rate_factors_.assign(segments.size(), 1.0);
  weight_decays_.assign(segments.size(), 0.0);
  for (size_t i = 0; i < segments.size(); ++i) {
    if (owned_[i] && segments[i].spec.decay) weight_decays_[i] = options_.weight_decay;
  }
  for (const ParameterGroup& group : options_.groups) {
    for_each(group.pattern, [&](size_t i) {
      if (!owned_[i]) return;
      rate_factors_[i] = group.rate_factor;
      weight_decays_[i] = group.weight_decay.value_or(segments[i].spec.decay ? options_.weight_decay : 0.0);
    });
  }
  set_layer_rates();
  set_regularizers();
}

void Optimizer::set_layer_rates() {
  if (options_.layer_decay == 1) return;
  const std::vector<nn::Segment>& segments = parameters_->segments();
  std::vector<std::string> declared(segments.size());
  for (const nn::Segment& segment : segments) declared[static_cast<size_t>(segment.id.index)] = segment.spec.name;
  const std::vector<double> factors = layer_rate_factors(declared, options_.layer_decay);
  for (size_t i = 0; i < segments.size(); ++i) rate_factors_[i] *= factors[static_cast<size_t>(segments[i].id.index)];
}

void Optimizer::set_regularizers() {
  const size_t count = parameters_->segments().size();
  regularizers_.clear();
  std::vector<double> in_loss(count, 0.0);
  for (size_t i = 0; i < count; ++i) {
    if (decay_form_ != DecayForm::kDecoupled && !decoupled_[i]) in_loss[i] = weight_decays_[i];
  }
  const bool decays = std::any_of(in_loss.begin(), in_loss.end(), [](double decay) { return decay > 0; });
  if (decays) regularizers_.push_back({.name = "weight_decay", .coefficients = std::move(in_loss)});
  for (const RegularizationTerm& term : options_.regularization) {
    std::vector<double> coefficients(count, 0.0);
    for_each(term.pattern, [&](size_t i) { coefficients[i] = owned_[i] ? term.coefficient : 0.0; });
    regularizers_.push_back({.name = term.name, .kind = term.kind, .coefficients = std::move(coefficients)});
  }
  l2_rates_.assign(count, 0.0);
  l1_rates_.assign(count, 0.0);
  for (const Regularizer& term : regularizers_) {
    if (&term == regularizers_.data() && decays && decay_form_ == DecayForm::kInUpdate) continue;
    std::vector<double>& rates = term.kind == RegularizationKind::kL1 ? l1_rates_ : l2_rates_;
    const double times = term.kind == RegularizationKind::kL2 ? 2.0 : 1.0;
    for (size_t i = 0; i < count; ++i) rates[i] += times * term.coefficients[i];
  }
}

void Optimizer::decouple(const std::vector<bool>& segments) {
  decoupled_ = segments;
  set_groups();
}

double Optimizer::update_decay(size_t segment) const {
  if (decoupled_[segment]) return weight_decays_[segment];
  switch (decay_form_) {
    case DecayForm::kCoupled:
      return 0.0;
    case DecayForm::kDecoupled:
      return weight_decays_[segment];
    case DecayForm::kInUpdate:
      return weight_decays_[segment] * weight_decay_factor_;
  }
  return 0.0;
}

void Optimizer::apply(const StepState& state, const at::Tensor& gradients) {
  const at::Tensor values = parameters_->values();
  if (gradients.sizes() != values.sizes() || gradients.scalar_type() != values.scalar_type() ||
      gradients.device() != values.device() || !gradients.is_contiguous()) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "gradients have another form than the parameters",
                 .expected = fmt::format("{} x {}", values.numel(), at::toString(values.scalar_type())),
                 .actual = fmt::format("{} x {}", gradients.numel(), at::toString(gradients.scalar_type()))});
  }
  if (part_.end - part_.begin != parameters_->total()) {
    throw Error(ErrorCode::kInternal, "an optimizer of a part cannot update all parameters: use update_part()");
  }
  if (options_.delayed) delay(state, gradients);
  if (norm_clipper_ != nullptr && !gradients_complete_) clip(state, gradients);
  const bool looks_ahead = options_.lookahead && !state.read().found_inf;
  if (looks_ahead) begin_lookahead();
  update(state, gradients);
  if (looks_ahead) end_lookahead();
  // The step says which update is the last one: the count leaves skipped ones out. Without an update there are no slow
  // weights yet.
  const bool ends = options_.lookahead && options_.lookahead->final_alpha &&
                    state.read().step + 1 == options_.lookahead->updates && lookahead_count_.item<double>() > 0;
  if (ends) move_slow_weights(*this, slow_weights(), 0);
  finish_update();
}

at::Tensor Optimizer::slow_weights() const {
  return slots_[slots_.size() - (options_.delayed ? 2 : 1)].values;
}

void Optimizer::begin_lookahead() {
  if (lookahead_count_.item<double>() == 0) slow_weights().copy_(parameters_->values());
}

void Optimizer::end_lookahead() {
  lookahead_count_.add_(1);
  const Lookahead& lookahead = *options_.lookahead;
  const auto count = lookahead_count_.item<int64_t>();
  if (count % lookahead.steps == 0) move_slow_weights(*this, slow_weights(), lookahead.alpha_at(count));
}

void Optimizer::finish_update() {
  gradients_complete_ = false;
  for (size_t i = 0; i < owned_.size(); ++i) {
    if (trainable(i)) parameters_->apply_mask(parameters_->segments()[i].id);
  }
  parameters_->values_changed();
}

int64_t Optimizer::part_boundary(int64_t element) const {
  const SegmentPart* const parts = parts_->data();
  const SegmentPart* const end = parts + parts_->count;
  const SegmentPart* const next =
      std::partition_point(parts, end, [element](const SegmentPart& each) { return each.begin < element; });
  return next == end ? parameters_->total() : next->begin;
}

void Optimizer::keep_part(Part part, const nn::ParameterSet::GradientMemory& memory) {
  if (const std::string obstacle = part_obstacle(); !obstacle.empty()) {
    throw Error(ErrorCode::kUnsupported, {.problem = "an optimizer cannot update a part of the parameters",
                                          .where = obstacle,
                                          .remedy = "let it update all of them"});
  }
  part_ = part;
  const int64_t count = part.end - part.begin;
  for (Slot& slot : slots_) {
    const at::Tensor before = slot.values.narrow(0, part.begin, count);
    at::Tensor own = count > 0 ? memory(count, before.scalar_type()) : at::Tensor();
    if (own.defined()) {
      own.copy_(before);
    } else {
      own = before.clone();
    }
    slot.values = std::move(own);
  }
}

void Optimizer::update_part(const StepState& state, const PartSteps& steps) {
  update_own_part(state, steps);
}

void Optimizer::update_own_part(const StepState&, const PartSteps&) {
  throw Error(ErrorCode::kInternal, "an optimizer that can update parts does not override update_own_part()");
}

void Optimizer::clip(const StepState& state, const at::Tensor& gradients) {
  if (device_ == nullptr) return norm_clipper_->measure(*this, state, gradients);
  if (!gradients.is_same(parameters_->gradients())) {
    require_host_memory("clipping by norm of gradients that lie elsewhere than their parameters'");
  }
  complete_gradients(state);
}

void Optimizer::delay(const StepState& state, const at::Tensor& gradients) {
  if (!gradients.is_same(parameters_->gradients())) {
    throw Error(ErrorCode::kUnsupported,
                {.problem = "gradients that lie elsewhere than their parameters' cannot be delayed",
                 .where = "OptimizerOptions::delayed",
                 .remedy = "let replicas exchange their gradients, by another variable update"});
  }
  if (!gradients_complete_) complete_gradients(state);
  at::Tensor delayed = slots_.back().values;
  if (device_ == nullptr) return exchange_on_host(*this, state, gradients, delayed);
  // Without a look at the device: a skipped update must not keep what made it so.
  const at::Tensor skipped = state.tensor()[StepState::kFoundInf] != 0, now = gradients.clone();
  for (const size_t i : own_) {
    const nn::Segment& segment = parameters_->segments()[i];
    const auto part = [&segment](const at::Tensor& all) { return all.narrow(0, segment.offset, segment.count); };
    if (!trainable(i)) continue;
    part(gradients).copy_(part(delayed));
    part(delayed).copy_(at::where(skipped, part(delayed), part(now)));
  }
}

void Optimizer::complete_gradients(const StepState& state) {
  gradients_complete_ = false;  // those of an earlier pass were
  if (device_ == nullptr) {
    if (norm_clipper_ != nullptr) norm_clipper_->measure(*this, state, parameters_->gradients());
    complete_on_host(*this, state);
  } else {
    complete_on_device(*this, state);
  }
  gradients_complete_ = true;
}

double Optimizer::number(std::string_view name) const {
  const auto found = options_.numbers.find(name);
  if (found != options_.numbers.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, value] : options_.numbers) names.push_back(known);
  throw core::unknown_name("number of the optimizer", name, names);
}

std::vector<std::string> Optimizer::hyperparameter_names() const {
  std::vector<std::string> names;
  for (const OptimizerNumber& number : declared_) {
    if (number.changes) names.push_back(number.name);
  }
  std::sort(names.begin(), names.end());
  names.emplace_back("weight_decay");
  return names;
}

void Optimizer::check_hyperparameter(std::string_view name) const {
  const std::vector<std::string> names = hyperparameter_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw core::unknown_name("hyperparameter", name, names);
  }
}

double Optimizer::hyperparameter(std::string_view name) const {
  check_hyperparameter(name);
  return name == "weight_decay" ? options_.weight_decay : number(name);
}

void Optimizer::set_hyperparameter(std::string_view name, double value) {
  check_hyperparameter(name);
  OptimizerOptions changed = options_;
  if (name == "weight_decay") {
    changed.weight_decay = value;
  } else {
    changed.numbers.find(name)->second = value;
  }
  changed.validate();
  changed.numbers = complete_numbers(declared_, changed.numbers);
  options_ = std::move(changed);
  set_groups();
}

at::Tensor Optimizer::add_slot(std::string name, double initial) {
  const auto behind = slots_.end() - ((options_.delayed ? 1 : 0) + (options_.lookahead ? 1 : 0));
  return slots_.insert(behind, {std::move(name), at::full_like(parameters_->values(), initial)})->values;
}

void Optimizer::count_updates(const std::vector<double>& initial, bool by_parameter) {
  update_count_ = at::tensor(initial, at::kDouble).to(parameters_->values().device());
  // Kernels of a device update frozen parameters, too.
  if (by_parameter && device_ == nullptr) {
    missed_updates_ = at::zeros({static_cast<int64_t>(own_.size())}, at::TensorOptions().dtype(at::kDouble));
  }
}

std::string Optimizer::count_name(const char* count) const {
  return parameters_->segments()[own_.front()].spec.name + "." + count;
}

std::string Optimizer::missed_name(size_t place) const {
  return parameters_->segments()[own_[place]].spec.name + ".missed_updates";
}

at::Tensor Optimizer::slot_of(size_t slot, const nn::Segment& segment) const {
  if (shared_slots_.empty()) {
    return slots_[slot].values.narrow(0, segment.offset - part_.begin, segment.count).view(segment.spec.shape);
  }
  at::Tensor whole = at::empty(segment.spec.shape, slots_[slot].values.options());
  const at::Tensor flat = whole.view({segment.count});
  int64_t begin = 0;
  for (const at::Tensor& part : shared_slots_[slot]) {
    const int64_t first = std::max(segment.offset, begin),
                  last = std::min(segment.offset + segment.count, begin + part.numel());
    if (first < last)
      flat.narrow(0, first - segment.offset, last - first).copy_(part.narrow(0, first - begin, last - first));
    begin += part.numel();
  }
  return whole;
}

void Optimizer::load_slot(const core::StateReader& reader, const Slot& slot, const nn::Segment& segment) const {
  const std::string name = segment.spec.name + "." + slot.name;
  const int64_t first = std::max(segment.offset, part_.begin),
                last = std::min(segment.offset + segment.count, part_.end);
  if (last - first == segment.count) {
    at::Tensor view = slot.values.narrow(0, first - part_.begin, segment.count).view(segment.spec.shape);
    return reader.tensor(name, view);
  }
  at::Tensor whole = at::empty(segment.spec.shape, slot.values.options());
  reader.tensor(name, whole);
  if (first >= last) return;
  slot.values.narrow(0, first - part_.begin, last - first)
      .copy_(whole.view({segment.count}).narrow(0, first - segment.offset, last - first));
}

void Optimizer::save(core::StateWriter& writer) const {
  for (size_t s = 0; s < slots_.size(); ++s) {
    for (const nn::Segment& segment : own_segments()) {
      writer.tensor(segment.spec.name + "." + slots_[s].name, slot_of(s, segment));
    }
  }
  if (update_count_.defined() && !own_.empty()) writer.tensor(count_name(), update_count_);
  for (size_t i = 0; missed_updates_.defined() && i < own_.size(); ++i) {
    const at::Tensor missed = missed_updates_.narrow(0, static_cast<int64_t>(i), 1);
    if (missed.item<double>() != 0) writer.tensor(missed_name(i), missed);
  }
  if (lookahead_count_.defined() && !own_.empty()) writer.tensor(count_name(kLookaheadCount), lookahead_count_);
}

void Optimizer::load(const core::StateReader& reader) {
  gradients_complete_ = false;
  for (const Slot& slot : slots_) {
    for (const nn::Segment& segment : own_segments()) load_slot(reader, slot, segment);
  }
  if (update_count_.defined() && !own_.empty()) reader.tensor(count_name(), update_count_);
  for (size_t i = 0; missed_updates_.defined() && i < own_.size(); ++i) {
    at::Tensor missed = missed_updates_.narrow(0, static_cast<int64_t>(i), 1);
    missed.zero_();
    if (reader.has(missed_name(i))) reader.tensor(missed_name(i), missed);
  }
  if (lookahead_count_.defined() && !own_.empty()) reader.tensor(count_name(kLookaheadCount), lookahead_count_);
}

}  // namespace trainyard::optim
