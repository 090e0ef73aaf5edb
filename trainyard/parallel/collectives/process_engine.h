// The progress thread of a process, which moves the bytes of its collectives with other processes. It owns the
// transport (MPI), posts sends and receives, polls them in turn, and sleeps for microseconds when nothing moves,
// because two processes may share a core. Everything has a deadline, except for opening the transport.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/collective_operation.h"
#include "trainyard/parallel/collectives/plan/message_transport.h"
#include "trainyard/parallel/collectives/plan/plan.h"
#include "trainyard/parallel/collectives/shared_memory/exchange_watch.h"

namespace trainyard::parallel {

// How processes are told of failures that messages do not show. Any thread may call both functions.
struct PeerWatch {
  std::function<std::optional<core::Error>()> reported;  // returns the error that another process has reported, if any
  std::function<void(const core::Error&)> report;        // reports an error to the other processes
  // Called when this process begins to wait for the others in a collective ("all-reduce"), and when it is done. May be
  // empty.
  std::function<void(const char* operation)> begin;
  std::function<void()> end;
};

class ProcessEngine final : public ExchangeWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // Makes the transport on the engine's thread, and waits for it. Throws what `open` throws, kTimeout when it takes
  // longer than the deadline, and what `peers` reports meanwhile. After the last two, the thread keeps waiting for the
  // others until the process ends.
  //
  // Releasing the last reference ends the thread at once. Pending transfers keep their memory, and so does a thread
  // that waits for the others in finish().
  static std::shared_ptr<ProcessEngine> start(std::function<std::unique_ptr<MessageTransport>()> open,
                                              std::chrono::milliseconds deadline, PeerWatch peers = {});

  // Returns a function that returns a count, which grows as long as the thread polls pending collectives, and nothing
  // when there are none. Any thread may call it, also after the engine's end.
  std::function<std::optional<int64_t>()> turns() const;
  int process() const { return process_; }
  int processes() const { return processes_; }

  // From now on, waits end when another process reports an error, and errors of this process are reported.
  void watch(PeerWatch peers);

  // A pending collective.
  struct Job {
    std::shared_ptr<CollectiveOperation> operation;
    bool finished = false;  // changes under mutex()
  };
  // Starts a collective. Throws kPeerFailed after a failure.
  std::shared_ptr<Job> submit(std::shared_ptr<CollectiveOperation> operation);

  // Blocks until `over` returns true. It is called under mutex(), after submit(), after jobs finish and after notify().
  // Returns false when the time is up. Throws kPeerFailed after a failure, here or reported by others.
  bool wait_until(Clock::time_point time, const std::function<bool()>& over);
  std::mutex& mutex() { return mutex_; }
  void notify() { changed_.notify_all(); }

  // Ends all waits, now and later, with this error, and reports it. The first error is kept.
  void fail(const core::Error& error) override;
  void throw_if_failed() override;

  // For an exchange without messages. check() asks the other processes every 50 ms at most.
  void check() override;
  void begin_meeting(const char* operation) override;
  void end_meeting() override;
  void begin_turns() override { ++pulse_->under_way; }
  void end_turns() override { --pulse_->under_way; }

  // Calls `work` with the transport on the engine's thread, which carries no messages meanwhile, and blocks until it
  // has returned. Collective where `work` is, between collectives: none of this process may be pending. Throws what
  // `work` throws, and kTimeout when it does not return by the deadline: then nothing more can be exchanged.
  void run_on_transport(const std::function<void(MessageTransport&)>& work, std::chrono::milliseconds deadline);

  // Returns what this process has sent for the collectives that are done, without the messages that agree on calls.
  Traffic sent() const;

  // Returns a number that is the same on all processes when they call it in the same order.
  int next_channel() { return channels_++; }

  // Collective: ends the exchange. Throws kTimeout when the others do not come, or kPeerFailed.
  void finish(std::chrono::milliseconds deadline);

 private:
  ProcessEngine() = default;
  // Ends the thread. Returns false when the thread waits for the others and cannot be ended.
  bool end();
  void serve(const std::function<std::unique_ptr<MessageTransport>()>& open);
  void exchange();
  // Waits for work. Returns false when there will be none.
  bool take_work(std::vector<std::shared_ptr<Job>>& jobs);
  // Runs what run_on_transport() has left, if anything.
  void run_task();
  void ask_peers();
  void leave_outside();
  void note_failure(const core::Error& error);
  // Ends all waits with the error of the transport. A broken connection is seldom the first cause: a process that hears
  // of another one's failure ends, and closes its connections. So what the other processes report is heard first, and
  // this process's own report, to which they answer, comes behind it.
  void fail_by_transport(const core::Error& error);
  // Waits for a report of the others, and ends all waits with it. Returns whether waits have ended, by that or before.
  bool await_report();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> submitted_;
  struct Task {
    std::function<void(MessageTransport&)> work;
    std::exception_ptr error;
    bool finished = false;
  };
  std::shared_ptr<Task> task_;      // that the thread has not begun
  std::atomic<bool> news_ = false;  // signals the thread
  bool opened_ = false, ending_ = false, finishing_ = false, finished_ = false;
  bool waits_outside_ = true;  // the thread is within a call of the transport that returns when the others come
  std::optional<core::Error> failure_;
  PeerWatch peers_;
  Clock::time_point asked_;
  int process_ = 0, processes_ = 1;
  Traffic sent_;
  std::atomic<int> channels_ = 0;
  struct Pulse {
    std::atomic<int64_t> turns = 0, under_way = 0;
  };
  const std::shared_ptr<Pulse> pulse_ = std::make_shared<Pulse>();

  // Used by the thread only.
  std::unique_ptr<MessageTransport> transport_;
  std::vector<std::shared_ptr<Job>> stuck_;  // ended before all of their messages had come

  std::optional<core::Thread> thread_;  // last: it uses all of the above
};

}  // namespace trainyard::parallel
