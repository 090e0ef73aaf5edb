#include "trainyard/parallel/collectives/collective_operation.h"

#include <utility>

#include "trainyard/core/base/enum_name.h"

namespace trainyard::parallel {

CollectiveOperation::CollectiveOperation(RankLayout layout, uint64_t sequence, int tag,
                                         std::vector<CollectiveCall> calls, AlgorithmChoice choose)
    : layout_(std::move(layout)),
      number_(sequence),
      tag_(tag),
      calls_(std::move(calls)),
      choose_(std::move(choose)),
      agreement_(layout_, sequence, tag, calls_) {}

std::string_view CollectiveOperation::name() const {
  return core::enum_name<CollectiveCall::Kind::kBarrier>(calls_[0].kind,
                                                         {"all-reduce", "broadcast", "gather", "barrier"});
}

bool CollectiveOperation::quiet() const {
  return agreement_.quiet() && (!run_ || run_->quiet());
}

bool CollectiveOperation::advance(MessageTransport& transport) {
  const bool answered_before = agreement_.answered();
  bool moved = agreement_.advance(transport);
  if (agreement_.answered() && !answered_before) agreed_at_ = std::chrono::steady_clock::now();
  if (!run_ && agreement_.may_begin()) begin();
  const bool refused = agreement_.refusal().has_value();
  if (run_ && !refused) moved |= run_->advance(transport, tag_ + CallAgreement::kTags, agreement_.answered());
  done_ = agreement_.complete() && (refused || (run_ && run_->complete()));
  waits_for_.store(done_ ? -1 : find_waited_for(), std::memory_order_relaxed);
  return moved;
}

int CollectiveOperation::find_waited_for() const {
  if (!agreement_.heard()) return layout_.process - 1;
  const int peer = run_ ? run_->waits_for() : -1;
  return peer >= 0 || agreement_.answered() ? peer : layout_.process + 1;
}

void CollectiveOperation::begin() {
  PlanMemory memory = memory_of(calls_, layout_.ranks());
  gathered_ = memory.gathered;
  CollectiveRequest request = request_of(calls_[0], layout_);
  request.number = number_;
  run_.emplace(choose_(request).plan(request), std::move(memory));
}

}  // namespace trainyard::parallel
