#include "trainyard/train/step/step_input.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/data/sources/combined_source.h"
#include "trainyard/data/sources/described_source.h"

namespace trainyard::train {

bool StepInput::complete(const std::vector<data::Batch>& batches) const {
  if (static_cast<int>(batches.size()) != options_.devices.replicas) return false;
  const auto is_empty = [](const data::Batch& batch) { return batch.tensors.empty(); };
  const bool all_empty = std::all_of(batches.begin(), batches.end(), is_empty);
  // Towers may take batches without tensors; a graph does not, and a replica without any is one that has no batch where
  // others have some.
  if (all_empty && options_.tower) return true;
  return std::none_of(batches.begin(), batches.end(),
                      [&](const data::Batch& batch) { return is_empty(batch) || batch.samples() == 0; });
}

bool StepInput::take_ahead(int64_t step) {
  const auto takes_turn = [step](const CostOptions& cost) { return step % cost.every == 0; };
  const bool trains = options_.costs.empty() || std::any_of(options_.costs.begin(), options_.costs.end(), takes_turn);
  const size_t wanted = trains ? static_cast<size_t>(options_.micro_steps) : 0;
  ahead_.clear();
  const data::Position before = source_.position();
  // A position is not the place of each of several sources.
  std::optional<core::MemoryState> saved;
  if (wanted > 1 && data::find_source<data::CombinedSource>(source_) != nullptr) source_.save(saved.emplace());
  while (ahead_.size() < wanted) {
    std::vector<data::Batch> batches;
    try {
      batches = source_.next();
    } catch (...) {
      put_back(before, saved ? &*saved : nullptr);
      throw;
    }
    if (!complete(batches)) {
      ahead_.clear();
      return false;
    }
    ahead_.push_back(std::move(batches));
  }
  return true;
}

// The step does not run, and the state that is saved at the end must not have skipped its batches.
void StepInput::put_back(data::Position before, const core::StateReader* saved) {
  if (ahead_.empty()) return;
  ahead_.clear();
  try {
    saved != nullptr ? source_.load(*saved) : source_.seek(before);
  } catch (const core::Error& error) {
    core::log::warning("the input could not go back to the beginning of the step: {}", error.what());
  }
}

std::vector<data::Batch> StepInput::next() {
  if (!ahead_.empty()) {
    std::vector<data::Batch> ahead = std::move(ahead_.front());
    ahead_.pop_front();
    return ahead;
  }
  std::vector<data::Batch> batches = source_.next();
  if (static_cast<int>(batches.size()) == options_.devices.replicas) return batches;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "the input ended in the middle of the training",
                     .expected = fmt::format("{} batches", options_.devices.replicas),
                     .actual = std::to_string(batches.size()),
                     .remedy = "let it repeat, or train fewer steps"});
}

}  // namespace trainyard::train
