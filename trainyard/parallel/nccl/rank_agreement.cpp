#include "trainyard/parallel/nccl/rank_agreement.h"

#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {

void RankAgreement::require_same_start(int64_t global_step) {
  const std::vector<std::string> starts = processes_->gather("the step to go on from", std::to_string(global_step));
  for (size_t rank = 1; rank < starts.size(); ++rank) {
    if (starts[rank] == starts[0]) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "ranks go on from different steps",
                       .where = fmt::format("rank {}", rank),
                       .expected = fmt::format("step {} as on rank 0", starts[0]),
                       .actual = starts[rank],
                       .remedy = "let --train_dir be the same folder on all machines"});
  }
}

std::string RankAgreement::agree_on_end(const std::string& wish) {
  std::string end = wish;
  if (processes_->rank() == 0) {
    if (end.empty()) end = processes_->told().value_or("");
  } else if (!end.empty() && !told_) {
    processes_->tell_first(end);
    told_ = true;
  }
  return processes_->from_first("whether there is a next step", end);
}

}  // namespace trainyard::parallel
