#include "trainyard/train/step/memory_forecast.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::train {

std::vector<std::optional<nn::ExecutorMemory>> MemoryForecast::compile(int r, int64_t samples) {
  const nn::AcceleratorScope on_device = replicas_.use(r);
  const at::AutoGradMode with_gradients(true);  // as for the forward that follows
  std::vector<std::optional<nn::ExecutorMemory>> executors;
  const auto prepared = [samples](const TowerContext::Graph& graph) {
    return graph.runs_whole_batch ? graph.executor->prepare(samples) : std::nullopt;
  };
  const TowerContext& tower = *replicas_[r].tower;
  for (const TowerContext::Graph& graph : tower.graphs()) executors.push_back(prepared(graph));
  for (const TowerContext::FrozenGraph& frozen : tower.frozen_graphs()) {
    const at::NoGradGuard without_gradients;
    executors.push_back(prepared(frozen.graph));
  }
  if (tower.graphs().empty()) executors.emplace_back();  // what such a tower takes is not known
  return executors;
}

RunMemory MemoryForecast::plan(int64_t batch) {
  std::vector<std::optional<nn::ExecutorMemory>> first;
  replicas_.run([&](int own) {
    if (own == 0) first = compile(0, batch);
  });
  std::vector<std::optional<nn::ExecutorMemory>> all;  // replicas are alike
  for (int r = 0; r < replicas_.size(); ++r) all.insert(all.end(), first.begin(), first.end());
  RunMemory memory = measure(all);
  memory.program = 0;
  return memory;
}

void MemoryForecast::prepare(const std::vector<data::Batch>& batches) {
  const OpenDevices& devices = replicas_.options().devices;
  nn::KernelChoices& choices = *devices.kernels.choices;
  std::vector<std::optional<nn::ExecutorMemory>> executors;  // of all replicas, which compile one after the other
  const auto agree = [&] {
    choices.agree(
        [&](const std::string& own) { return devices.processes->from_first("the kernels of the model", own); });
  };
  // One replica after the other: the first one measures, on cores that no other uses.
  if (!devices.is_chief()) agree();
  for (int r = 0; r < replicas_.size(); ++r) {
    replicas_.run([&](int own) {
      if (own != r) return;
      const auto own_executors = compile(r, batches[static_cast<size_t>(r)].samples());
      executors.insert(executors.end(), own_executors.begin(), own_executors.end());
    });
  }
  if (devices.is_chief() && devices.processes != nullptr) agree();
  core::trim_cpu_allocator();  // of what measuring took
  memory_ = measure(executors);
  core::log::info("{}", memory_line(*memory_));
}

RunMemory MemoryForecast::measure(const std::vector<std::optional<nn::ExecutorMemory>>& executors) const {
  parallel::VariableUpdate& update = replicas_.update();
  const auto value_bytes = [&](int r) { return static_cast<int64_t>(update.parameters(r).values().nbytes()); };
  RunMemory memory;
  memory.optimizer = update.optimizer_bytes();
  if (pass_.average() != nullptr) memory.optimizer += value_bytes(0);
  for (int r = 0; second_pass_ != nullptr && r < replicas_.size(); ++r) {
    if (second_pass_->keeps_copy(r)) memory.optimizer += value_bytes(r);
  }
  const void* const first_values = update.parameters(0).values().const_data_ptr();
  for (int r = 0; r < replicas_.size(); ++r) {
    const nn::ParameterSet& set = update.parameters(r);
    memory.add(set, r > 0 && set.values().const_data_ptr() == first_values);
    for (const TowerContext::FrozenGraph& frozen : replicas_[r].tower->frozen_graphs()) {
      memory.add_constant(*frozen.weights, frozen.shares_values);
    }
  }
  for (const std::optional<nn::ExecutorMemory>& executor : executors) memory.add(executor);
  const int64_t on_host = replicas_.on_cpu() ? memory.parameters + memory.gradients + memory.optimizer : 0;
  memory.program = std::max<int64_t>(0, resident_bytes() - on_host);
  return memory;
}

}  // namespace trainyard::train
