#include "trainyard/train/evaluation/shared_statistics.h"

#include <memory>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/parallel/process_group/state_broadcast.h"

namespace trainyard::train {

void take_statistics_of_first(parallel::ProcessGroup& ranks, nn::ParameterSet& parameters) {
  core::MemoryState own;
  const auto count = static_cast<int>(parameters.buffer_count());
  if (ranks.rank() == 0) {
    for (int b = 0; b < count; ++b) own.tensor(parameters.buffer_spec(b).name, parameters.buffer(b));
  }
  const std::unique_ptr<core::StateReader> first = parallel::broadcast_state(ranks, ranks.rank() == 0 ? &own : nullptr);
  if (first == nullptr) return;
  for (int b = 0; b < count; ++b) {
    at::Tensor buffer = parameters.buffer(b);
    first->tensor(parameters.buffer_spec(b).name, buffer);
  }
}

}  // namespace trainyard::train
