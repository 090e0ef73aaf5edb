#include "trainyard/parallel/collectives/chain_operation.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include <ATen/ops/empty.h>

#include "trainyard/parallel/collectives/threads/rank_reduction.h"

namespace trainyard::parallel {

using core::Error;
using Kind = CollectiveCall::Kind;

namespace {

constexpr size_t kAll = std::numeric_limits<size_t>::max();

char* bytes_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.mutable_data_ptr());
}

core::ReduceOp operation_of(const CollectiveCall& call) {
  return static_cast<core::ReduceOp>(call.argument);
}

}  // namespace

int ChainLayout::process_of(int rank) const {
  return static_cast<int>(std::upper_bound(first_ranks.begin(), first_ranks.end(), rank) - first_ranks.begin()) - 1;
}

ChainOperation::ChainOperation(ChainLayout layout, uint64_t sequence, int tag, std::vector<CollectiveCall> calls)
    : layout_(std::move(layout)), sequence_(sequence), tag_(tag), calls_(std::move(calls)) {
  forward_out_ = ChainMessage::of(calls_[0], sequence_);
  if (const auto error = disagreement(calls_, layout_.first())) forward_out_.refuse(*error);
}

const char* ChainOperation::name() const {
  switch (calls_[0].kind) {
    case Kind::kAllReduce:
      return "all-reduce";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kAllGather:
      return "gather";
    case Kind::kBarrier:
      break;
  }
  return "barrier";
}

bool ChainOperation::quiet() const {
  const auto sent = [](const std::unique_ptr<Transfer>& transfer) { return transfer == nullptr; };
  return sent(forward_receipt_) && sent(forward_sent_) && sent(backward_receipt_) && sent(backward_sent_) &&
         from_before_.idle() && to_behind_.idle() && from_behind_.idle() && to_before_.idle();
}

bool ChainOperation::advance(MessageTransport& transport) {
  bool moved = exchange_messages(transport);
  const bool refused = refusal_.has_value();
  if (ready_ && !refused) moved |= move_data(transport);
  const bool told = answered_ && forward_sent_ == nullptr && backward_sent_ == nullptr;
  done_ = told && (refused || (agreed_ && streams_complete()));
  waits_for_before_ = !done_ && !is_first() && (!agreed_ || !from_before_.complete());
  waits_for_behind_ = !done_ && !is_last() && agreed_ && (!answered_ || !from_behind_.complete());
  return moved;
}

// Forward: what rank 0 called, or why it cannot be done, as far as the processes up to here know. Backward: what the
// last process knows, which is what all know.
bool ChainOperation::exchange_messages(MessageTransport& transport) {
  const int before = layout_.process - 1, behind = layout_.process + 1;
  bool moved = false;
  const auto arrived = [&moved](std::unique_ptr<Transfer>& transfer) {
    if (transfer == nullptr || !transfer->done()) return false;
    transfer.reset();
    moved = true;
    return true;
  };
  if (!std::exchange(posted_, true)) {
    if (!is_first()) {
      forward_receipt_ = transport.receive(before, tag(Channel::kForwardMessage), &forward_in_, sizeof(forward_in_));
    }
    if (!is_last()) {
      backward_receipt_ =
          transport.receive(behind, tag(Channel::kBackwardMessage), &backward_in_, sizeof(backward_in_));
    }
    moved = true;
  }
  const auto answer = [&](const ChainMessage& known) {
    refusal_ = known.refusal();
    answered_ = true;
    if (is_first()) return;
    backward_out_ = known;
    backward_sent_ = transport.send(before, tag(Channel::kBackwardMessage), &backward_out_, backward_out_.bytes());
  };
  const bool first_turn = is_first() && !agreed_;
  if (first_turn || arrived(forward_receipt_)) {
    ready_ = agree_forward();
    agreed_ = true;
    if (ready_) set_up();
    if (is_last()) {
      answer(forward_out_);
    } else {
      forward_sent_ = transport.send(behind, tag(Channel::kForwardMessage), &forward_out_, forward_out_.bytes());
    }
  }
  if (arrived(backward_receipt_)) {
    backward_in_.validate(sequence_);
    answer(backward_in_);
  }
  arrived(forward_sent_);
  arrived(backward_sent_);
  return moved;
}

// Compares the own call with rank 0's. Returns whether it can be done as far as is known here.
bool ChainOperation::agree_forward() {
  if (is_first()) return forward_out_.refused == 0;
  forward_in_.validate(sequence_);
  if (forward_in_.refused != 0 || forward_out_.refused == 0) {
    const bool same = forward_in_.refused != 0 || agree(forward_in_.call(), calls_[0]);
    forward_out_ = forward_in_;
    if (!same) forward_out_.refuse(different_calls(forward_in_.call(), 0, calls_[0], layout_.first()));
  }
  return forward_out_.refused == 0;
}

void ChainOperation::set_up() {
  for (const CollectiveCall& call : calls_) {
    if (call.tensor.defined()) buffers_.push_back(call.tensor.mutable_data_ptr());
  }
  switch (calls_[0].kind) {
    case Kind::kAllReduce:
      return set_up_all_reduce();
    case Kind::kBroadcast:
      return set_up_broadcast();
    case Kind::kAllGather:
      return set_up_all_gather();
    case Kind::kBarrier:
      return;
  }
}

void ChainOperation::set_up_all_reduce() {
  const at::Tensor& own = calls_[0].tensor;
  const at::ScalarType type = partial_type(own.scalar_type());
  const auto width = static_cast<int64_t>(c10::elementSize(type)), own_width = own.element_size();
  piece_elements_ = kPiece / width;
  const int64_t elements = own.numel();
  const auto partial_bytes = static_cast<size_t>(elements * width), own_bytes = own.nbytes();
  const auto piece = static_cast<size_t>(piece_elements_ * width);
  const auto own_piece = static_cast<size_t>(piece_elements_ * own_width);
  const int before = layout_.process - 1, behind = layout_.process + 1;
  if (!is_first()) {
    ring_ = at::empty({std::min(elements, static_cast<int64_t>(ChainStream::kWindow) * piece_elements_)}, type);
    from_before_ = ChainStream({.base = bytes_of(ring_),
                                .bytes = partial_bytes,
                                .piece = piece,
                                .peer = before,
                                .tag = tag(Channel::kForwardData),
                                .ring = true});
    to_before_ = ChainStream({.base = bytes_of(own),
                              .bytes = own_bytes,
                              .piece = own_piece,
                              .peer = before,
                              .tag = tag(Channel::kBackwardData)});
  }
  if (!is_last()) {
    partials_ = type == own.scalar_type() ? own : at::empty({elements}, type);
    to_behind_ = ChainStream({.base = bytes_of(partials_),
                              .bytes = partial_bytes,
                              .piece = piece,
                              .peer = behind,
                              .tag = tag(Channel::kForwardData)});
    from_behind_ = ChainStream({.base = bytes_of(own),
                                .bytes = own_bytes,
                                .piece = own_piece,
                                .peer = behind,
                                .tag = tag(Channel::kBackwardData)});
  }
}

void ChainOperation::set_up_broadcast() {
  const int root = calls_[0].argument, from = layout_.process_of(root);
  const bool here = from == layout_.process;
  const at::Tensor& own = calls_[here ? static_cast<size_t>(root - layout_.first()) : 0].tensor;
  // The root's tensor, or the first one here, is what the others become.
  if (here) std::swap(buffers_[0], buffers_[static_cast<size_t>(root - layout_.first())]);
  const auto stream = [&](int peer, Channel channel) {
    return ChainStream(
        {.base = bytes_of(own), .bytes = own.nbytes(), .piece = kPiece, .peer = peer, .tag = tag(channel)});
  };
  const int before = layout_.process - 1, behind = layout_.process + 1;
  if (layout_.process > from) from_before_ = stream(before, Channel::kForwardData);
  if (layout_.process >= from && !is_last()) to_behind_ = stream(behind, Channel::kForwardData);
  if (layout_.process < from) from_behind_ = stream(behind, Channel::kBackwardData);
  if (layout_.process <= from && !is_first()) to_before_ = stream(before, Channel::kBackwardData);
}

void ChainOperation::set_up_all_gather() {
  std::vector<int64_t> shape = calls_[0].shape;
  shape.insert(shape.begin(), layout_.ranks());
  gathered_ = at::empty(shape, calls_[0].type);
  char* const all = bytes_of(gathered_);
  const size_t each = calls_[0].tensor.nbytes();
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (each != 0) std::memcpy(all + (static_cast<size_t>(layout_.first()) + i) * each, buffers_[i], each);
  }
  const auto stream = [&](int begin, int end, int peer, Channel channel) {
    return ChainStream({.base = all + static_cast<size_t>(begin) * each,
                        .bytes = static_cast<size_t>(end - begin) * each,
                        .piece = kPiece,
                        .peer = peer,
                        .tag = tag(channel)});
  };
  const int before = layout_.process - 1, behind = layout_.process + 1;
  if (!is_first()) {
    from_before_ = stream(0, layout_.first(), before, Channel::kForwardData);
    to_before_ = stream(layout_.first(), layout_.ranks(), before, Channel::kBackwardData);
  }
  if (!is_last()) {
    to_behind_ = stream(0, layout_.end(), behind, Channel::kForwardData);
    from_behind_ = stream(layout_.end(), layout_.ranks(), behind, Channel::kBackwardData);
  }
}

bool ChainOperation::move_data(MessageTransport& transport) {
  switch (calls_[0].kind) {
    case Kind::kAllReduce:
      return move_all_reduce(transport);
    case Kind::kBroadcast:
      return move_broadcast(transport);
    case Kind::kAllGather:
      return move_all_gather(transport);
    case Kind::kBarrier:
      return false;
  }
  return false;
}

// Adds up one piece, so that small collectives of other communicators get a turn between the pieces of a large one.
bool ChainOperation::reduce_piece() {
  const at::Tensor& own = calls_[0].tensor;
  const int64_t begin = reduced_, end = std::min(own.numel(), begin + piece_elements_);
  const at::ScalarType type = own.scalar_type();
  const auto width = static_cast<int64_t>(c10::elementSize(partial_type(type)));
  if (begin == end || (!is_first() && from_before_.through() < static_cast<size_t>(end * width))) return false;
  const void* before = nullptr;
  if (!is_first()) {
    const int64_t place = begin / piece_elements_ % static_cast<int64_t>(ChainStream::kWindow);
    before = bytes_of(ring_) + place * piece_elements_ * width;
  }
  if (is_last()) {
    finish_reduction(type, operation_of(calls_[0]), before, buffers_, begin, end, layout_.ranks());
  } else {
    void* const partial = bytes_of(partials_) + begin * width;
    const bool is_there = before == nullptr && buffers_.size() == 1 && partials_.is_same(own);
    if (!is_there) reduce_partly(type, operation_of(calls_[0]), before, buffers_, begin, end, partial);
  }
  reduced_ = end;
  return true;
}

bool ChainOperation::move_all_reduce(MessageTransport& transport) {
  const auto own_width = static_cast<size_t>(calls_[0].tensor.element_size());
  const size_t width = c10::elementSize(partial_type(calls_[0].type));
  const auto reduced = static_cast<size_t>(reduced_);
  const size_t ring = ChainStream::kWindow * static_cast<size_t>(piece_elements_);
  bool moved = from_before_.receive(transport, (reduced + ring) * width);
  moved |= reduce_piece();
  moved |= to_behind_.send(transport, static_cast<size_t>(reduced_) * width);
  if (is_last()) return to_before_.send(transport, static_cast<size_t>(reduced_) * own_width) || moved;
  // A result takes the place of the partial sum, which must have left.
  const size_t left = to_behind_.through() / width * own_width;
  if (answered_) moved |= from_behind_.receive(transport, left);
  moved |= spread(from_behind_.through());
  return to_before_.send(transport, from_behind_.through()) || moved;
}

bool ChainOperation::move_broadcast(MessageTransport& transport) {
  const int from = layout_.process_of(calls_[0].argument);
  bool moved = from_before_.receive(transport, kAll);
  if (answered_) moved |= from_behind_.receive(transport, kAll);
  const bool here = from == layout_.process;
  const ChainStream& in = layout_.process > from ? from_before_ : from_behind_;
  const size_t come = here ? calls_[0].tensor.nbytes() : in.through();
  moved |= to_behind_.send(transport, come);
  // Behind the root, nothing but the answer goes back.
  if (answered_) moved |= to_before_.send(transport, come);
  return spread(come) || moved;
}

bool ChainOperation::move_all_gather(MessageTransport& transport) {
  bool moved = from_before_.receive(transport, kAll);
  moved |= to_behind_.send(transport, from_before_.complete() ? kAll : from_before_.through());
  if (!answered_) return moved;
  moved |= from_behind_.receive(transport, kAll);
  const size_t own = static_cast<size_t>(layout_.local()) * calls_[0].tensor.nbytes();
  return to_before_.send(transport, own + from_behind_.through()) || moved;
}

bool ChainOperation::spread(size_t through) {
  if (through <= spread_) return false;
  const char* const from = static_cast<const char*>(buffers_[0]) + spread_;
  for (void* buffer : std::span(buffers_).subspan(1)) {
    std::memcpy(static_cast<char*>(buffer) + spread_, from, through - spread_);
  }
  spread_ = through;
  return true;
}

bool ChainOperation::streams_complete() const {
  const bool reduced = calls_[0].kind != Kind::kAllReduce || reduced_ == calls_[0].tensor.numel();
  return reduced && from_before_.complete() && to_behind_.complete() && from_behind_.complete() &&
         to_before_.complete();
}

}  // namespace trainyard::parallel
