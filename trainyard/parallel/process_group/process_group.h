// The processes of a training: they share texts, hear of each other's failures, and leave together.
//
// Rank 0 serves a TCP port (process_hub.h) to which each rank has one connection. A thread says what this process does
// (a heart beat) and hears the others. A rank that dies, freezes or does not go on is named by rank 0 to all; where
// rank 0 itself is the one, each of the others sees it by itself. So every process ends, and all name the same rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"
#include "trainyard/parallel/process_group/liveness.h"
#include "trainyard/parallel/process_group/process_rank.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::parallel {

struct ProcessGroupOptions {
  RankDeadlines deadlines{};
  // Where rank 0 listens, a name or number of its machine; others must be able to reach it by that. Empty: at
  // ProcessRank::master_address, which is loopback where `share` says where the ranks meet. An address that other
  // machines reach is a warning.
  std::string listen_address{};
  // Collective: returns rank 0's text, by what the processes were started with (MPI). With it, rank 0 takes a port that
  // is free and a token that only these processes know. Without: they meet at master_address:master_port, or where
  // torchrun's store says.
  std::function<std::string(const std::string& of_first)> share{};
  // Called, on the group's thread, when the group has failed and nobody has left or destroyed it in `grace`: a thread
  // that cannot be woken holds the process. To end it by force is all that is left.
  std::function<void(const core::Error& error)> last_resort{};
  std::chrono::milliseconds grace = std::chrono::seconds(5);
};

// All ranks make the collective calls in the same order, each from one thread; any thread may make the others. A call
// that waits throws what reported() says when the group has failed: kPeerFailed, or kTimeout where ranks have never
// come.
class ProcessGroup {
 public:
  // Collective. Throws kIo where rank 0 cannot listen, kTimeout where it cannot be reached, kInvalidArgument where two
  // processes have the same rank or another number of ranks.
  ProcessGroup(ProcessRank process, ProcessGroupOptions options);
  // All deadlines are the same.
  ProcessGroup(ProcessRank process, std::chrono::milliseconds deadline);
  // Does not wait for anybody, but lets the others hear when it comes before leave().
  ~ProcessGroup();

  int rank() const { return process_.rank; }
  int size() const { return process_.size; }
  const ProcessRank& process() const { return process_; }

  // Collective: returns rank 0's text, which may hold any bytes, 64 MiB at most. `what` is for messages, and the same
  // on all ranks. Rank 0 does not wait.
  std::string from_first(const std::string& what, const std::string& text);
  // Collective: returns each rank's text, in rank order; 64 MiB together at most.
  std::vector<std::string> gather(const std::string& what, const std::string& text);
  // The last collective: returns when all ranks leave, or the group has failed. Does not throw.
  void leave();

  // Leaves a note for rank 0, which it looks at when it likes. The last note stays.
  void send_note_to_rank_0(const std::string& text);
  std::optional<std::string> told();  // on rank 0

  // Ends what the others wait for, with this error. The first error stays.
  void report(const core::Error& error);
  // Returns why the group has failed.
  [[nodiscard]] std::optional<core::Error> reported();

  // Says what this process does from now on: what the others read when it stops there. `step` below 0: the first step
  // has not begun, and the start's deadline counts. Short, as the group's thread shows it (`top -H`): "at all-reduce".
  void progress(const std::string& operation, int64_t step);
  // The same within the step that was said last.
  void progress(const std::string& operation);
  // Between these two the process waits for the others in an exchange that the group does not carry. All ranks begin
  // the same ones in the same order.
  void begin_meeting();
  void end_meeting();

  // `turns` returns a count that grows as long as what carries this process's exchange looks after it, and nothing
  // while there is nothing to exchange; any thread. Where the count stands still for the deadline it is this process
  // that keeps the others waiting, and says so.
  void watch_exchange(std::function<std::optional<int64_t>()> turns);

  const RankDeadlines& deadlines() const { return options_.deadlines; }

 private:
  class Connection;
  class Meeting;

  const ProcessRank process_;
  const ProcessGroupOptions options_;
  int64_t calls_ = 0, shared_ = 0;
  bool left_ = false;
  std::unique_ptr<Connection> connection_;
};

}  // namespace trainyard::parallel
TRAINYARD_EXPORT_END
