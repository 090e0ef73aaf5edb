// Writes checkpoints on a thread of its own, one after the other, while the training continues.
//
//   CheckpointQueue queue;
//   auto copy = queue.copy(trainer, trainer.global_step());                                   // of now
//   if (copy) queue.submit([=]() mutable { store.save(copy->global_step(), identity, *copy); });
//   queue.check();  // between steps: throws what has failed
//   queue.drain();  // at the end: all is durable, or it throws
//
// At most one write runs and one waits, so at most two copies of the state are in memory for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "trainyard/core/base/stateful.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/train/checkpoint/checkpoint_copy.h"

namespace trainyard::train {

// What has become of a write. Any thread may ask.
class QueuedWrite {
 public:
  enum class State { kPending, kDone, kFailed };
  State state() const { return state_; }
  // Returns the seconds from submit() until the write was durable; 0 before that.
  double seconds() const { return seconds_; }

 private:
  friend class CheckpointQueue;
  std::atomic<State> state_ = State::kPending;
  std::atomic<double> seconds_ = 0;
};

// One thread uses it: the one that trains.
class CheckpointQueue {
 public:
  // `budget` returns how many bytes a copy may take now.
  explicit CheckpointQueue(std::function<int64_t()> budget = checkpoint_copy_budget);
  // Blocks until all is written. Logs an error that no call has thrown.
  ~CheckpointQueue();
  CheckpointQueue(const CheckpointQueue&) = delete;
  CheckpointQueue& operator=(const CheckpointQueue&) = delete;

  // Blocks until no write waits for another one. Then returns a copy of the state, which shares tensors with an earlier
  // copy of the same step that is still in use. Returns null, and says so once in the log, when memory does not suffice
  // for one. Throws what an earlier write threw, and what CheckpointCopy::of() throws.
  [[nodiscard]] std::shared_ptr<const CheckpointCopy> copy(const core::Stateful& state, int64_t global_step);

  // Lets `write` run when the writes before it are done, and blocks while another one already waits. Throws what an
  // earlier write threw; `write` is then dropped.
  std::shared_ptr<const QueuedWrite> submit(std::function<void()> write);

  // Throws, once, what a write threw. The writes that waited behind it were dropped, as they would not have been
  // reached in the training's own thread.
  void check();
  // Blocks until no write is left. Throws as check() does.
  void drain();

 private:
  struct Job {
    std::function<void()> write;
    std::shared_ptr<QueuedWrite> result;
    double begin = 0;
  };

  void run();
  void throw_failure(std::unique_lock<std::mutex>& lock);
  void await_room(std::unique_lock<std::mutex>& lock);

  const std::function<int64_t()> budget_;
  std::weak_ptr<const CheckpointCopy> last_copy_;
  bool said_no_room_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  bool running_ = false, ending_ = false;
  std::exception_ptr failure_;
  std::optional<core::Thread> thread_;  // begins with the first write; last: it uses all of the above
};

}  // namespace trainyard::train
