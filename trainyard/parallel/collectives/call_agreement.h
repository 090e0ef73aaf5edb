// How the processes find out, before the bytes of a collective go, whether all have called the same. Messages go from
// process to process: forward, what rank 0 called, or why it cannot be done, as far as the processes up to there know;
// backward, what the last process knows, which is what all know. Processes that called different collectives all get
// the same error.
//
// One thread, the engine's, uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/plan/call_message.h"
#include "trainyard/parallel/collectives/plan/message_transport.h"
#include "trainyard/parallel/collectives/plan/plan.h"

namespace trainyard::parallel {

class CallAgreement {
 public:
  static constexpr int kTags = 2;

  // `calls`: of this process's replicas. `tag`: the first of kTags that nothing else uses meanwhile.
  CallAgreement(RankLayout layout, uint64_t sequence, int tag, const std::vector<CollectiveCall>& calls);

  // Makes progress without waiting. Returns true when any bytes moved. Throws kPeerFailed and kCorruptData.
  bool advance(MessageTransport& transport);

  // Returns true when the processes up to this one have been heard of.
  bool heard() const { return heard_; }
  // Returns true when heard() and they agree.
  bool may_begin() const { return heard_ && forward_out_.refused == 0; }
  // Returns true when it is known what all agree on.
  bool answered() const { return answered_; }
  // Returns true when answered() and the neighbours have been told.
  bool complete() const { return answered_ && forward_sent_ == nullptr && backward_sent_ == nullptr; }
  // Returns the error that all ranks get, once answered().
  const std::optional<core::Error>& refusal() const { return refusal_; }
  // Returns true when none of its messages is on its way.
  bool quiet() const;

 private:
  void compare_calls();
  void answer(MessageTransport& transport, const CallMessage& known);
  bool is_first() const { return layout_.process == 0; }
  bool is_last() const { return layout_.process == layout_.processes() - 1; }
  int forward_tag() const { return tag_; }
  int backward_tag() const { return tag_ + 1; }

  const RankLayout layout_;
  const uint64_t sequence_;
  const int tag_;
  const CollectiveCall call_;  // of the first replica here, without its tensor
  CallMessage forward_in_, forward_out_, backward_in_, backward_out_;
  std::unique_ptr<Transfer> forward_receipt_, forward_sent_, backward_receipt_, backward_sent_;
  bool posted_ = false, heard_ = false, answered_ = false;
  std::optional<core::Error> refusal_;
};

}  // namespace trainyard::parallel
