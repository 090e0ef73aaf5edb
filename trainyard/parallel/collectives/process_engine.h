// The thread of a process that moves the bytes of its collectives with other processes. It owns what carries them
// (MPI), posts sends and receives and looks after them in turn, and sleeps for microseconds where nothing moves: two
// processes may share a core. Nothing waits without a deadline but opening.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/chain_operation.h"
#include "trainyard/parallel/collectives/message_transport.h"

namespace trainyard::parallel {

// How processes hear of failures that messages do not show. Any thread may call both.
struct PeerWatch {
  std::function<std::optional<core::Error>()> reported;  // what another process has reported, if anything
  std::function<void(const core::Error&)> report;        // lets the other processes hear of an error
  // Hear when this process begins to wait for the others in a collective ("all-reduce"), and when it is done. May be
  // left out.
  std::function<void(const char* operation)> begin;
  std::function<void()> end;
};

class ProcessEngine {
 public:
  using Clock = std::chrono::steady_clock;

  // Makes the transport on the engine's thread, and waits for it. Throws what `open` throws, and kTimeout when it takes
  // longer than the deadline, and what `peers` reports meanwhile: then a thread that waits for the others is left
  // behind, which only the process ends.
  //
  // The last reference ends the thread, at once. What is on its way then keeps its memory, and so does a thread that
  // waits for the others to finish().
  static std::shared_ptr<ProcessEngine> start(std::function<std::unique_ptr<MessageTransport>()> open,
                                              std::chrono::milliseconds deadline, PeerWatch peers = {});

  // Returns a function that gives a count which grows as long as the thread looks after collectives that are on their
  // way, and nothing where there are none. Any thread may call it, also after the engine's end.
  std::function<std::optional<int64_t>()> turns() const;
  int process() const { return process_; }
  int processes() const { return processes_; }

  // From now on waits end when another process reports an error, and errors here are reported.
  void watch(PeerWatch peers);

  // A collective on its way.
  struct Job {
    std::shared_ptr<ChainOperation> operation;
    bool finished = false;  // changes under mutex()
  };
  // Throws kPeerFailed after a failure.
  std::shared_ptr<Job> submit(std::shared_ptr<ChainOperation> operation);

  // Blocks until `over` holds, which is asked under mutex() and may change by submit(), jobs that finish and
  // notify(). Returns false when the time is up. Throws kPeerFailed after a failure, here or reported by others.
  bool wait_until(Clock::time_point time, const std::function<bool()>& over);
  std::mutex& mutex() { return mutex_; }
  void notify() { changed_.notify_all(); }

  // Ends all waits, now and later, with this error, and reports it. The first error stays.
  void fail(const core::Error& error);
  void throw_if_failed();

  // Returns a number that is the same on all processes when they ask in the same order.
  int next_channel() { return channels_++; }

  // Collective: ends the exchange. Throws kTimeout when the others do not come, or kPeerFailed.
  void finish(std::chrono::milliseconds deadline);

 private:
  ProcessEngine() = default;
  // Ends the thread. Returns false when it waits for the others, and cannot be ended.
  bool end();
  void serve(const std::function<std::unique_ptr<MessageTransport>()>& open);
  void exchange();
  // Waits for work. Returns false when there will be none.
  bool take_work(std::vector<std::shared_ptr<Job>>& jobs);
  void ask_peers();
  void leave_outside();
  void note_failure(const core::Error& error);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> submitted_;
  std::atomic<bool> news_ = false;  // for the thread
  bool opened_ = false, ending_ = false, finishing_ = false, finished_ = false;
  bool waits_outside_ = true;  // the thread is within a call of the transport that returns when the others come
  std::optional<core::Error> failure_;
  PeerWatch peers_;
  Clock::time_point asked_;
  int process_ = 0, processes_ = 1;
  std::atomic<int> channels_ = 0;
  struct Pulse {
    std::atomic<int64_t> turns = 0, under_way = 0;
  };
  const std::shared_ptr<Pulse> pulse_ = std::make_shared<Pulse>();

  // The thread's own.
  std::unique_ptr<MessageTransport> transport_;
  std::vector<std::shared_ptr<Job>> stuck_;  // ended before all of their messages had come

  std::optional<core::Thread> thread_;  // last: it uses all of the above
};

}  // namespace trainyard::parallel
