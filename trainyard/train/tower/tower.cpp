#include "trainyard/train/tower/tower.h"

#include <limits>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "trainyard/nn/execution/sink_hook.h"

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
  graphs_.push_back(
      {.executor = nn::make_executor(place_.executor, graph, context), .runs_whole_batch = options.runs_whole_batch});
  return *graphs_.back().executor;
}

TowerParameter& TowerContext::parameter(const nn::ParameterSpec& spec) {
  own_parameters_.push_back(std::unique_ptr<TowerParameter>(new TowerParameter(place_.build, spec)));
  return *own_parameters_.back();
}

}  // namespace trainyard::train
