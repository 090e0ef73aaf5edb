#include "trainyard/train/step/replica_threads.h"

#include <exception>
#include <utility>

#include <fmt/format.h>

#include "trainyard/train/loop/error_context.h"

namespace trainyard::train {

ReplicaThreads::ReplicaThreads(std::vector<core::ThreadOptions> replicas,
                               std::function<void(const core::Error&)> on_first_error)
    : on_first_error_(std::move(on_first_error)) {
  threads_.reserve(replicas.size());
  try {
    for (size_t r = 0; r < replicas.size(); ++r) {
      threads_.emplace_back(std::move(replicas[r]), [this, r] { serve(static_cast<int>(r)); });
    }
  } catch (...) {
    end();
    throw;
  }
}

ReplicaThreads::~ReplicaThreads() {
  end();
}

void ReplicaThreads::end() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  handed_over_.notify_all();
  threads_.clear();
}

void ReplicaThreads::run(const std::function<void(int)>& work) {
  std::unique_lock lock(mutex_);
  work_ = &work;
  working_ = static_cast<int>(threads_.size());
  first_error_.reset();
  ++round_;
  handed_over_.notify_all();
  finished_.wait(lock, [&] { return working_ == 0; });
  work_ = nullptr;
  if (first_error_) throw *first_error_;
}

void ReplicaThreads::serve(int replica) {
  std::unique_lock lock(mutex_);
  for (int64_t seen = 0;;) {
    handed_over_.wait(lock, [&] { return ending_ || round_ != seen; });
    if (ending_) return;
    seen = round_;
    const std::function<void(int)>& work = *work_;
    lock.unlock();
    std::optional<core::Error> error;
    try {
      core::apply_team_affinity();
      work(replica);
    } catch (...) {
      error = as_error(std::current_exception()).in(fmt::format("replica {}", replica));
    }
    lock.lock();
    if (error && !first_error_) {
      first_error_ = error;
      lock.unlock();
      on_first_error_(*error);
      lock.lock();
    }
    if (--working_ == 0) finished_.notify_one();
  }
}

}  // namespace trainyard::train
