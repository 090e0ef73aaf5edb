// A collective between processes as a chain. Each process has one replica or several, numbered through in the order of
// the processes: global ranks. Partial sums travel from the first process to the last: each adds its own replicas'
// values in their order to what comes from the process before, so that the order of each sum is that of the global
// ranks,
// ((g0 + g1) + g2) + g3, and does not depend on how they are spread over processes. Results travel back while later
// pieces still come. A process sends at most twice the bytes of the vector, as in a ring.
//
// Before the bytes go, in both directions, messages that say what was called: processes that called different
// collectives all get the same error.
//
// One thread, the engine's, uses it.
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

// Where the replicas of all processes are.
struct ChainLayout {
  int process = 0;
  std::vector<int> first_ranks;  // of each process, and the number of ranks at the end

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

  // `calls`: of this process's replicas. `tag`: the first of four that nothing else uses meanwhile.
  ChainOperation(ChainLayout layout, uint64_t sequence, int tag, std::vector<CollectiveCall> calls);

  // Returns "all-reduce", "broadcast", "gather" or "barrier".
  const char* name() const;
  // Does what can be done without waiting. Returns true when anything moved. Throws kPeerFailed and kCorruptData.
  bool advance(MessageTransport& transport);
  bool done() const { return done_; }

  // After done(): what all ranks get instead of a result.
  const std::optional<core::Error>& refusal() const { return refusal_; }
  // After done(), of all_gather: [ranks, ...].
  const at::Tensor& gathered() const { return gathered_; }
  // Returns true when nothing of it is on its way, and its memory may be let go of.
  bool quiet() const;

  // Any thread: whether it waits for the process before, or behind.
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
  // Copies what has come into the first replica's tensor to the others here.
  bool spread(size_t through);
  bool streams_complete() const;

  const ChainLayout layout_;
  const uint64_t sequence_;
  const int tag_;
  std::vector<CollectiveCall> calls_;
  std::vector<void*> buffers_;  // of the tensors

  ChainMessage forward_in_, forward_out_, backward_in_, backward_out_;
  std::unique_ptr<Transfer> forward_receipt_, forward_sent_, backward_receipt_, backward_sent_;
  // Receives are posted; the forward message has gone on; the call can be done; the backward message has gone on.
  bool posted_ = false, agreed_ = false, ready_ = false, answered_ = false;
  std::optional<core::Error> refusal_;
  bool done_ = false;
  std::atomic<bool> waits_for_before_ = false, waits_for_behind_ = false;

  ChainStream from_before_, to_behind_, from_behind_, to_before_;
  at::Tensor ring_;      // what comes from before, of a reduction
  at::Tensor partials_;  // what goes behind: the first replica's tensor, but for narrow types
  at::Tensor gathered_;
  int64_t piece_elements_ = 0, reduced_ = 0;  // elements
  size_t spread_ = 0;                         // bytes
};

}  // namespace trainyard::parallel
