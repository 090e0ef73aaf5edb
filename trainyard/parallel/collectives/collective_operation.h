// A collective between processes on its way: the processes agree on what was called (call_agreement.h), and then carry
// out the plan of an algorithm (plan/algorithm.h).
//
// One thread, the engine's, uses it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/call_agreement.h"
#include "trainyard/parallel/collectives/plan/algorithm.h"
#include "trainyard/parallel/collectives/plan/plan_run.h"

namespace trainyard::parallel {

class CollectiveOperation {
 public:
  static constexpr int kTags = CallAgreement::kTags + kMostStreams;

  // `calls`: of this process's replicas. `tag`: the first of kTags that nothing else uses meanwhile.
  CollectiveOperation(RankLayout layout, uint64_t sequence, int tag, std::vector<CollectiveCall> calls,
                      AlgorithmChoice choose);

  // Returns "all-reduce", "broadcast", "gather" or "barrier".
  std::string_view name() const;
  // Makes progress without waiting. Returns true when any bytes moved. Throws kPeerFailed and kCorruptData.
  bool advance(MessageTransport& transport);
  bool done() const { return done_; }

  // Returns the error that all ranks get instead of a result. After done().
  const std::optional<core::Error>& refusal() const { return agreement_.refusal(); }
  // After done(): when this process learned that all ranks had called.
  std::chrono::steady_clock::time_point agreed_at() const { return agreed_at_; }
  // After done(), of all_gather: [ranks, ...].
  const at::Tensor& gathered() const { return gathered_; }
  // After done(): what this process has sent, without the messages of the agreement.
  Traffic sent() const { return run_ ? run_->sent() : Traffic(); }
  // Returns true when no transfer is pending, so that its memory may be freed.
  bool quiet() const;

  // Any thread: the process that it waits for; -1 when it waits for none.
  int waits_for() const { return waits_for_; }

 private:
  void begin();
  int find_waited_for() const;

  const RankLayout layout_;
  const uint64_t number_;
  const int tag_;
  const std::vector<CollectiveCall> calls_;
  const AlgorithmChoice choose_;
  CallAgreement agreement_;
  std::optional<PlanRun> run_;  // once it may begin
  at::Tensor gathered_;
  bool done_ = false;
  std::chrono::steady_clock::time_point agreed_at_ = std::chrono::steady_clock::time_point::max();
  std::atomic<int> waits_for_ = -1;
};

}  // namespace trainyard::parallel
