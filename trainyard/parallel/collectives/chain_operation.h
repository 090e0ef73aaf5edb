// A collective between processes as a chain. Each process has one replica or several, numbered through in the order of
// the processes: global ranks. Partial sums travel from the first process to the last: each adds its own replicas'
// values in their order to what comes from the process before, so that each sum is in the order of the global ranks,
// ((g0 + g1) + g2) + g3, and does not depend on how they are distributed over processes. Results travel back while
// later pieces still arrive. A process sends at most twice the bytes of the vector, as in a ring.
//
// Messages that describe the call precede the bytes, in both directions: processes that called different collectives
// all get the same error.
//
// Used only by the engine's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/chain_message.h"
#include "trainyard/parallel/collectives/chain_stream.h"
#include "trainyard/parallel/collectives/message_transport.h"
#include "trainyard/parallel/collectives/threads/collective_call.h"

namespace trainyard::parallel {

// The distribution of replicas over processes.
struct ChainLayout {
  int process = 0;
  std::vector<int> first_ranks;  // first rank of each process, then the number of ranks

  int processes() const { return static_cast<int>(first_ranks.size()) - 1; }
  int ranks() const { return first_ranks.back(); }
  int first() const { return first_ranks[static_cast<size_t>(process)]; }
  int end() const { return first_ranks[static_cast<size_t>(process) + 1]; }
  int local() const { return end() - first(); }
  int process_of(int rank) const;
};

class ChainOperation {
 public:
  // Bytes of a piece: small enough to stay in the second cache between two neighbours on one machine.
  static constexpr int64_t kPiece = 256 * 1024;

  // `calls` are those of this process's replicas. `tag` is the first of four tags that nothing else uses meanwhile.
  ChainOperation(ChainLayout layout, uint64_t sequence, int tag, std::vector<CollectiveCall> calls);

  // Returns "all-reduce", "broadcast", "gather" or "barrier".
  const char* name() const;
  // Makes progress without waiting. Returns true when any bytes moved. Throws kPeerFailed and kCorruptData.
  bool advance(MessageTransport& transport);
  bool done() const { return done_; }

  // Returns the error that all ranks get instead of a result. After done().
  const std::optional<core::Error>& refusal() const { return refusal_; }
  // Returns the result of an all_gather, [ranks, ...]. After done().
  const at::Tensor& gathered() const { return gathered_; }
  // Returns true when no transfer is pending, so that its memory may be freed.
  bool quiet() const;

  // Returns whether it waits for the previous process, or the next one. Any thread.
  bool waits_for_before() const { return waits_for_before_; }
  bool waits_for_behind() const { return waits_for_behind_; }

 private:
  enum class Channel { kForwardMessage, kForwardData, kBackwardMessage, kBackwardData };
  bool is_first() const { return layout_.process == 0; }
  bool is_last() const { return layout_.process == layout_.processes() - 1; }
  int tag(Channel channel) const { return tag_ + static_cast<int>(channel); }

  bool exchange_messages(MessageTransport& transport);
  bool agree_forward();
  void set_up();
  void set_up_all_reduce();
  void set_up_broadcast();
  void set_up_all_gather();
  bool move_data(MessageTransport& transport);
  bool move_all_reduce(MessageTransport& transport);
  bool move_broadcast(MessageTransport& transport);
  bool move_all_gather(MessageTransport& transport);
  bool reduce_piece();
  // Copies what has arrived in the first replica's tensor to the other replicas of this process.
  bool spread(size_t through);
  bool streams_complete() const;

  const ChainLayout layout_;
  const uint64_t sequence_;
  const int tag_;
  std::vector<CollectiveCall> calls_;
  std::vector<void*> buffers_;  // memory of the tensors

  ChainMessage forward_in_, forward_out_, backward_in_, backward_out_;
  std::unique_ptr<Transfer> forward_receipt_, forward_sent_, backward_receipt_, backward_sent_;
  // Receives are posted; the forward message is sent; the call is valid; the backward message is sent.
  bool posted_ = false, agreed_ = false, ready_ = false, answered_ = false;
  std::optional<core::Error> refusal_;
  bool done_ = false;
  std::atomic<bool> waits_for_before_ = false, waits_for_behind_ = false;

  ChainStream from_before_, to_behind_, from_behind_, to_before_;
  at::Tensor ring_;      // partial sums from the previous process
  at::Tensor partials_;  // partial sums for the next process: the first replica's tensor, except for 16-bit types
  at::Tensor gathered_;
  int64_t piece_elements_ = 0, reduced_ = 0;  // elements
  size_t spread_ = 0;                         // bytes
};

}  // namespace trainyard::parallel
