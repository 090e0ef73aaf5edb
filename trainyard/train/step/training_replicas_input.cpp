// Where the replicas of a TowerTrainer get their batches from, and when there are no more.
#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "trainyard/train/step/training_replicas.h"

namespace trainyard::train {

bool TowerTrainer::Replicas::complete(const std::vector<data::Batch>& batches) const {
  if (batches.size() != replicas_.size()) return false;
  const auto is_empty = [](const data::Batch& batch) { return batch.tensors.empty(); };
  const bool all_empty = std::all_of(batches.begin(), batches.end(), is_empty);
  // Towers may take batches without tensors; a graph does not, and a replica without any is one that has no batch where
  // others have some.
  if (all_empty && options_.tower) return true;
  return std::none_of(batches.begin(), batches.end(),
                      [&](const data::Batch& batch) { return is_empty(batch) || batch.samples() == 0; });
}

bool TowerTrainer::Replicas::take_batches(data::BatchSource& source, int64_t step) {
  const Clock::time_point begin = Clock::now();
  size_t wanted = 0;
  for (const CostOptions& cost : costs_) {
    if (step % cost.every == 0) wanted = static_cast<size_t>(options_.micro_steps);
  }
  taken_ahead_.clear();
  while (taken_ahead_.size() < wanted) {
    std::vector<data::Batch> batches = source.next();
    if (!complete(batches)) {
      taken_ahead_.clear();
      return false;
    }
    taken_ahead_.push_back(std::move(batches));
  }
  seconds_ahead_ = std::chrono::duration<double>(Clock::now() - begin).count();
  return true;
}

std::vector<data::Batch> TowerTrainer::Replicas::next_batches(data::BatchSource& source) {
  if (!taken_ahead_.empty()) {
    std::vector<data::Batch> ahead = std::move(taken_ahead_.front());
    taken_ahead_.pop_front();
    return ahead;
  }
  std::vector<data::Batch> batches = source.next();
  if (batches.size() == replicas_.size()) return batches;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "the input ended in the middle of the training",
                                                        .expected = fmt::format("{} batches", replicas_.size()),
                                                        .actual = std::to_string(batches.size()),
                                                        .remedy = "let it repeat, or train fewer steps"});
}

}  // namespace trainyard::train
