// NCCL as tests see it: ranks on threads of one process, whose "devices" are the host's memory. Each rank has a stream,
// a thread that does its collectives in their order behind the one that calls, and that waits there for its peers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/nccl/nccl_library.h"
#include "trainyard/parallel/collectives/plan/rank_reduction.h"

namespace trainyard::parallel {

class FakeNccl : public NcclLibrary {
 public:
  std::string version() override { return "fake"; }
  std::string unique_id() override { return "communicator " + std::to_string(ids_++); }
  std::vector<std::unique_ptr<NcclRank>> join(const std::string& id, int size, int first_rank,
                                              std::span<const at::Device> devices) override;
  std::string identity(at::Device) override { return one_gpu ? "a GPU" : "GPU " + std::to_string(identities_++); }

  bool one_gpu = false;               // all devices are the same
  std::string refusal;                // what collectives are refused with; empty: they are not
  std::atomic<bool> records = false;  // streams are recorded: collectives are counted, not done
  // What state() says from now on; empty: that all is well.
  void break_connection(const std::string& why) {
    std::lock_guard lock(mutex_);
    broken_ = why;
  }
  std::atomic<int> aborted = 0, finished = 0, destroyed = 0, recorded = 0;

 private:
  class Rank;
  // The ranks with one id. What they bring to their n-th collective, until all have come.
  struct World {
    explicit World(int size) : tensors(static_cast<size_t>(size)) {}
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<void*> tensors;
    int joined = 0, arrived = 0;
    int64_t meetings = 0;
    bool aborted = false;
  };
  std::string broken() {
    std::lock_guard lock(mutex_);
    return broken_;
  }

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<World>> worlds_;
  std::string broken_;
  std::atomic<int> ids_ = 0, identities_ = 0;
};

class FakeNccl::Rank : public NcclRank {
 public:
  Rank(FakeNccl& library, std::shared_ptr<World> world, int rank)
      : library_(library), world_(std::move(world)), rank_(rank), stream_({.name = "stream"}, [this] { serve(); }) {
    std::lock_guard lock(world_->mutex);
    ++world_->joined;
  }
  ~Rank() override {
    ++library_.destroyed;
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
  }

  NcclAnswer all_reduce(void* data, int64_t count, at::ScalarType type, core::ReduceOp op) override {
    return hand_over(data, [=](const std::vector<void*>& all) { reduce_range(type, op, all, 0, count); });
  }
  NcclAnswer broadcast(void* data, int64_t bytes, int root) override {
    return hand_over(data, [=](const std::vector<void*>& all) {
      for (size_t r = 0; r < all.size(); ++r) {
        if (static_cast<int>(r) != root)
          std::memcpy(all[r], all[static_cast<size_t>(root)], static_cast<size_t>(bytes));
      }
    });
  }
  // The last to come has each rank's target; their own values travel in the slot of their rank.
  NcclAnswer all_gather(const void* own, void* all, int64_t bytes) override {
    auto* const target = static_cast<char*>(all);
    std::memcpy(target + rank_ * bytes, own, static_cast<size_t>(bytes));
    return hand_over(target, [=](const std::vector<void*>& targets) {
      for (size_t from = 0; from < targets.size(); ++from) {
        for (void* to : targets) {
          const auto offset = static_cast<int64_t>(from) * bytes;
          if (to != targets[from]) {
            std::memcpy(static_cast<char*>(to) + offset, static_cast<char*>(targets[from]) + offset,
                        static_cast<size_t>(bytes));
          }
        }
      }
    });
  }

  NcclAnswer state() override {
    if (const std::string why = library_.broken(); !why.empty()) return {NcclAnswer::State::kFailed, why};
    std::lock_guard lock(world_->mutex);
    const bool all_here = world_->joined == static_cast<int>(world_->tensors.size());
    if (!all_here || looks_left_-- > 0) return {NcclAnswer::State::kInProgress};
    return {};
  }
  NcclAnswer finish() override {
    ++library_.finished;
    looks_left_ = 3;
    return {NcclAnswer::State::kInProgress};
  }
  void abort() override {
    ++library_.aborted;
    {
      std::lock_guard lock(world_->mutex);
      world_->aborted = true;
    }
    world_->changed.notify_all();
  }
  bool recording() override { return library_.records; }
  std::unique_ptr<DeviceMark> mark() override {
    struct Mark : DeviceMark {
      bool reached() override { return *done; }
      std::shared_ptr<std::atomic<bool>> done = std::make_shared<std::atomic<bool>>(false);
    };
    auto mark = std::make_unique<Mark>();
    enqueue([done = mark->done] { *done = true; });
    return mark;
  }

 private:
  using Work = std::function<void(const std::vector<void*>&)>;

  NcclAnswer hand_over(void* data, Work work) {
    if (!library_.refusal.empty()) return {NcclAnswer::State::kFailed, library_.refusal};
    if (library_.records) {
      ++library_.recorded;
      return {};
    }
    enqueue([this, data, work = std::move(work)] { meet(data, work); });
    looks_left_ = 3;
    return {NcclAnswer::State::kInProgress};
  }

  // Waits on the stream until all ranks have come, or one has aborted. The last does the work.
  void meet(void* data, const Work& work) {
    std::unique_lock lock(world_->mutex);
    world_->tensors[static_cast<size_t>(rank_)] = data;
    const int64_t meeting = world_->meetings;
    if (++world_->arrived == static_cast<int>(world_->tensors.size())) {
      work(world_->tensors);
      world_->arrived = 0;
      ++world_->meetings;
      world_->changed.notify_all();
      return;
    }
    world_->changed.wait(lock, [&] { return world_->meetings != meeting || world_->aborted; });
  }

  void enqueue(std::function<void()> work) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const auto work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  FakeNccl& library_;
  const std::shared_ptr<World> world_;
  const int rank_;
  int looks_left_ = 3;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool ending_ = false;
  core::Thread stream_;  // last: it uses all of the above
};

inline std::vector<std::unique_ptr<NcclRank>> FakeNccl::join(const std::string& id, int size, int first_rank,
                                                             std::span<const at::Device> devices) {
  std::shared_ptr<World> world;
  {
    std::lock_guard lock(mutex_);
    std::shared_ptr<World>& known = worlds_[id];
    if (known == nullptr) known = std::make_shared<World>(size);
    world = known;
  }
  std::vector<std::unique_ptr<NcclRank>> ranks;
  for (size_t i = 0; i < devices.size(); ++i) {
    ranks.push_back(std::make_unique<Rank>(*this, world, first_rank + static_cast<int>(i)));
  }
  return ranks;
}

}  // namespace trainyard::parallel
