// The processes of a training: they share texts, are told of each other's failures, and leave together.
//
// Rank 0 serves a TCP port (process_hub.h) to which each rank has one connection. A thread sends this process's
// heartbeats and receives messages. Rank 0 tells all ranks which rank has died, is frozen or makes no progress; when it
// is rank 0 itself, each of the others detects it. So every process ends, and all name the same rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/process_group/liveness.h"
#include "trainyard/parallel/process_group/process_rank.h"

namespace trainyard::parallel {

struct ProcessGroupOptions {
  RankDeadlines deadlines{};
  // The address at which rank 0 listens, a name or number of its machine through which the others can reach it. Empty:
  // ProcessRank::master_address, which is loopback when `share` is given. Warns about an address that other machines
  // can reach.
  std::string listen_address{};
  // Collective: returns rank 0's text through the launcher (MPI). With it, rank 0 uses a free port and a token that
  // only these processes know. Empty: the ranks meet at master_address:master_port, or at the address in torchrun's
  // store.
  std::function<std::string(const std::string& of_first)> share{};
  // Called, on the group's thread, when the group has failed and was neither left nor destroyed within `grace`: a
  // thread that cannot be woken blocks the process, which must be ended by force.
  std::function<void(const core::Error& error)> last_resort{};
  std::chrono::milliseconds grace = std::chrono::seconds(5);
};

// All ranks make the collective calls in the same order, each from one thread; any thread may make the others. A call
// that waits throws the error of reported() when the group has failed: kPeerFailed, or kTimeout when ranks have never
// connected.
class ProcessGroup {
 public:
  // Connects the ranks. Collective. Throws kIo when rank 0 cannot listen, kTimeout when it cannot be reached,
  // kInvalidArgument when two processes have the same rank or different numbers of ranks.
  ProcessGroup(ProcessRank process, ProcessGroupOptions options);
  // Connects the ranks with the same value for all deadlines.
  ProcessGroup(ProcessRank process, std::chrono::milliseconds deadline);
  // Does not wait. The others are told when it is destroyed before leave().
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

  // Sends a note to rank 0, which can read it at any time. A later note replaces it.
  void send_note_to_rank_0(const std::string& text);
  std::optional<std::string> told();  // returns the last note, on rank 0

  // Ends the waits of the other ranks with this error. The first error is kept.
  void report(const core::Error& error);
  // Returns why the group has failed.
  [[nodiscard]] std::optional<core::Error> reported();

  // Sets this process's activity, which the others report when it makes no progress. With `step` below 0 the first step
  // has not begun, and the start's deadline counts. Keep it short, because the group's thread shows it in its name
  // (`top -H`): "at all-reduce".
  void progress(const std::string& operation, int64_t step);
  // Does the same for the current step.
  void progress(const std::string& operation);
  // Between these two calls the process waits for the others in a meeting (a collective call) outside of the group. All
  // ranks begin the same meetings in the same order.
  void begin_meeting();
  void end_meeting();
  // Returns whether this process waits for the others in a collective call of the group, whose end has not come yet:
  // where others judge it, too, such as parameter servers, it is not to blame meanwhile. Any thread.
  [[nodiscard]] bool waits() const;
  // Returns what it does, as progress() says. Any thread.
  [[nodiscard]] std::string operation() const;
  // Between these two calls a thread of the process waits where others judge who keeps it waiting, such as for
  // parameter servers: the group does not blame the process meanwhile.
  void begin_wait_elsewhere();
  void end_wait_elsewhere();

  // `turns` returns a count that grows as long as this process's progress thread polls its exchange, and nothing while
  // there is none. Any thread calls it. When the count does not change for the deadline, this process keeps the others
  // waiting, and reports itself.
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
