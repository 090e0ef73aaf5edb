#include "trainyard/train/step/foreign_random.h"

#include <algorithm>
#include <mutex>
#include <variant>

#include <ATen/CPUGeneratorImpl.h>

namespace trainyard::train {

bool has_foreign_modules(const nn::Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const nn::Node& node) { return std::holds_alternative<nn::Foreign>(node.op); });
}

void seed_aten_random(uint64_t seed) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

at::Tensor aten_random_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_aten_random_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace trainyard::train
