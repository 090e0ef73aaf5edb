#include "trainyard/train/checkpoint/checkpoint_queue.h"

#include <utility>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/log.h"
#include "trainyard/train/checkpoint/saving_time.h"

namespace trainyard::train {

CheckpointQueue::CheckpointQueue(std::function<int64_t()> budget) : budget_(std::move(budget)) {}

CheckpointQueue::~CheckpointQueue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.reset();  // joins
  if (!failure_) return;
  try {
    std::rethrow_exception(failure_);
  } catch (const std::exception& error) {
    core::log::error("a checkpoint is lost: {}", error.what());
  } catch (...) {
    core::log::error("a checkpoint is lost");
  }
}

std::shared_ptr<const CheckpointCopy> CheckpointQueue::copy(const core::Stateful& state, int64_t global_step) {
  {
    std::unique_lock lock(mutex_);
    await_room(lock);
  }
  std::shared_ptr<const CheckpointCopy> before = last_copy_.lock();
  if (before && before->global_step() != global_step) before.reset();
  std::shared_ptr<const CheckpointCopy> copy = CheckpointCopy::of(state, global_step, before.get(), budget_());
  if (copy == nullptr && !said_no_room_) {
    core::log::info("a copy of the state does not fit into memory: the training waits while checkpoints are written");
    said_no_room_ = true;
  }
  if (copy) last_copy_ = copy;
  return copy;
}

std::shared_ptr<const QueuedWrite> CheckpointQueue::submit(std::function<void()> write) {
  auto result = std::make_shared<QueuedWrite>();
  {
    std::unique_lock lock(mutex_);
    const double begin = core::steady_seconds();
    await_room(lock);
    waiting_.push_back({std::move(write), result, begin});
    if (!thread_) thread_.emplace(core::ThreadOptions{.name = "checkpoints"}, [this] { run(); });
  }
  changed_.notify_all();
  return result;
}

void CheckpointQueue::check() {
  std::unique_lock lock(mutex_);
  throw_failure(lock);
}

void CheckpointQueue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && !running_; });
  throw_failure(lock);
}

void CheckpointQueue::await_room(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return waiting_.empty(); });
  throw_failure(lock);
}

void CheckpointQueue::throw_failure(std::unique_lock<std::mutex>& lock) {
  if (!failure_) return;
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  lock.unlock();
  std::rethrow_exception(failure);
}

void CheckpointQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    running_ = true;
    lock.unlock();
    changed_.notify_all();  // there is room for the next one
    std::exception_ptr failure;
    try {
      job.write();
    } catch (...) {
      failure = std::current_exception();
    }
    job.write = nullptr;  // frees the copy
    lock.lock();
    running_ = false;
    if (failure) {
      job.result->state_ = QueuedWrite::State::kFailed;
      failure_ = failure;
      for (const Job& dropped : waiting_) dropped.result->state_ = QueuedWrite::State::kFailed;
      waiting_.clear();
    } else {
      job.result->seconds_ = core::steady_seconds() - job.begin;
      job.result->state_ = QueuedWrite::State::kDone;
    }
    changed_.notify_all();
  }
}

}  // namespace trainyard::train
