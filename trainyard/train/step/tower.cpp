#include "trainyard/train/step/tower.h"

#include <limits>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "trainyard/nn/execution/sink_hook.h"
#include "trainyard/nn/execution/sized_executor.h"
#include "trainyard/nn/quantization/quantization_aware.h"

namespace trainyard::train {

core::RandomStream TowerInput::stream(std::string_view name) const {
  return {random.seed,
          name,
          {static_cast<uint64_t>(random.step), static_cast<uint64_t>(random.micro_step),
           static_cast<uint64_t>(random.first_sample)}};
}

at::Tensor TowerInput::normals(at::IntArrayRef sizes, std::string_view name) const {
  at::Tensor numbers = at::empty(sizes, at::kFloat);
  stream(name).normals(numbers.mutable_data_ptr<float>(), numbers.numel());
  return numbers;
}

TowerParameter::TowerParameter(const nn::BuildContext& context, const nn::ParameterSpec& spec)
    : context_(context), id_(context.parameter(spec)) {}

const at::Tensor& TowerParameter::value() {
  const bool trains =
      context_.mode == nn::Mode::kTraining && context_.gradients != nullptr && context_.parameters->trainable(id_);
  if (!leaf_.defined()) {
    leaf_ = context_.parameters->value(id_).detach();
    if (context_.gradients != nullptr) {
      leaf_.requires_grad_(true);  // a hook needs it
      nn::send_gradients(leaf_, *context_.gradients, id_);
    }
  }
  return leaf_.requires_grad_(trains);
}

TowerContext::TowerContext(Place place) : place_(std::move(place)) {}

TowerContext::~TowerContext() = default;

std::string TowerContext::name_prefix() const {
  if (!training()) return "inference/";
  return first() ? "" : fmt::format("tower{}/", index());
}

nn::Executor& TowerContext::graph(const nn::Graph& graph, const TowerGraphOptions& options) {
  nn::BuildContext context = place_.build;
  context.name_prefix += options.prefix;
  graphs_.push_back({.executor = nn::make_sized_executor(place_.executor, graph, options.other_sizes, context),
                     .runs_whole_batch = options.runs_whole_batch});
  return *graphs_.back().executor;
}

nn::Executor& TowerContext::frozen_graph(const nn::Graph& graph, nn::ParameterSet& weights,
                                         const TowerGraphOptions& options) {
  const bool here = device() == weights.values().device();
  FrozenGraph frozen{.shares_values = here && !first()};
  frozen.weights =
      std::make_unique<nn::ParameterSet>(here ? nn::ParameterSet::sharing_values(weights)
                                              : nn::ParameterSet({.dtype = weights.dtype(), .device = device()}));
  nn::BuildContext context = place_.build;
  context.mode = nn::Mode::kInference;
  context.frozen = true;
  context.name_prefix = options.prefix;
  context.parameters = frozen.weights.get();
  context.gradients = nullptr;
  // A teacher stays as it is where the trained network learns to be rounded.
  const std::string executor = place_.executor == nn::kQuantizationAware ? "auto" : place_.executor;
  frozen.graph = {.executor = nn::make_sized_executor(executor, graph, options.other_sizes, context),
                  .runs_whole_batch = options.runs_whole_batch};
  if (!here) {
    frozen.weights->allocate();
    frozen.weights->copy_from(weights);
  }
  frozen_graphs_.push_back(std::move(frozen));
  return *frozen_graphs_.back().graph.executor;
}

TowerParameter& TowerContext::parameter(const nn::ParameterSpec& spec) {
  own_parameters_.push_back(std::unique_ptr<TowerParameter>(new TowerParameter(place_.build, spec)));
  return *own_parameters_.back();
}

}  // namespace trainyard::train
