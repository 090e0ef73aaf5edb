#include "trainyard/parallel/collectives/call_agreement.h"

#include <utility>

namespace trainyard::parallel {
namespace {

CollectiveCall without_tensor(CollectiveCall call) {
  call.tensor.reset();
  return call;
}

}  // namespace

CallAgreement::CallAgreement(RankLayout layout, uint64_t sequence, int tag, const std::vector<CollectiveCall>& calls)
    : layout_(std::move(layout)), sequence_(sequence), tag_(tag), call_(without_tensor(calls[0])) {
  forward_out_ = CallMessage::of(call_, sequence_, layout_.first());
  if (const auto error = disagreement(calls, layout_.first())) forward_out_.refuse(*error);
}

bool CallAgreement::quiet() const {
  return forward_receipt_ == nullptr && forward_sent_ == nullptr && backward_receipt_ == nullptr &&
         backward_sent_ == nullptr;
}

bool CallAgreement::advance(MessageTransport& transport) {
  const int before = layout_.process - 1, behind = layout_.process + 1;
  bool moved = false;
  const auto arrived = [&moved](std::unique_ptr<Transfer>& transfer) {
    if (transfer == nullptr || !transfer->done()) return false;
    transfer.reset();
    moved = true;
    return true;
  };
  if (!std::exchange(posted_, true)) {
    if (!is_first()) forward_receipt_ = transport.receive(before, forward_tag(), &forward_in_, sizeof(forward_in_));
    if (!is_last()) backward_receipt_ = transport.receive(behind, backward_tag(), &backward_in_, sizeof(backward_in_));
    moved = true;
  }
  if ((is_first() && !heard_) || arrived(forward_receipt_)) {
    compare_calls();
    heard_ = true;
    if (is_last()) {
      answer(transport, forward_out_);
    } else {
      forward_sent_ = transport.send(behind, forward_tag(), &forward_out_, forward_out_.bytes());
    }
  }
  if (arrived(backward_receipt_)) {
    backward_in_.validate(sequence_);
    answer(transport, backward_in_);
  }
  arrived(forward_sent_);
  arrived(backward_sent_);
  return moved;
}

// Compares the own call with rank 0's.
void CallAgreement::compare_calls() {
  if (is_first()) return;
  forward_in_.validate(sequence_);
  if (forward_in_.refused == 0 && forward_out_.refused != 0) return;
  const bool same = forward_in_.refused != 0 || agree(forward_in_.call(), call_);
  forward_out_ = forward_in_;
  if (!same) forward_out_.refuse(different_calls(forward_in_.call(), 0, call_, layout_.first()));
}

void CallAgreement::answer(MessageTransport& transport, const CallMessage& known) {
  refusal_ = known.refusal();
  answered_ = true;
  if (is_first()) return;
  backward_out_ = known;
  backward_sent_ = transport.send(layout_.process - 1, backward_tag(), &backward_out_, backward_out_.bytes());
}

}  // namespace trainyard::parallel
