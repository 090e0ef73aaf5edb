// Watches the ranks of this process, so that nothing waits forever for a rank that is gone: a thread checks the
// deadlines of pending calls and NCCL's errors. An error of one rank ends all of them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/nccl/nccl_library.h"

namespace trainyard::parallel {

// A rank and its pending calls.
struct NcclMember {
  int rank = 0, size = 1;
  std::mutex mutex;  // guards everything below
  std::unique_ptr<NcclRank> handle;
  bool ended = false;              // `handle` takes no further call
  std::atomic<int64_t> calls = 0;  // written with the mutex
  struct Pending {
    std::unique_ptr<DeviceMark> mark;
    std::string operation;
    std::chrono::steady_clock::time_point since;
    std::chrono::milliseconds deadline;
  };
  std::deque<Pending> pending;  // enqueued and not known to be done, in order

  // Removes the calls that are done. Needs the mutex.
  void drop_reached();
};

class NcclWatch {
 public:
  // Returns the error that another process has reported, if any. Called about once a second, on the watch's thread.
  using PeerFailure = std::function<std::optional<core::Error>()>;
  explicit NcclWatch(PeerFailure peer_failure);
  // Ends the ranks: together and in order, or at once after an error.
  ~NcclWatch();

  void add(const std::shared_ptr<NcclMember>& member);

  // Ends all ranks with this error; the first error is kept. Does not wait. Any thread.
  void fail(const core::Error& error);
  void throw_if_failed() const;
  // Returns the error of a call that missed its deadline: the call, and the ranks of this process for which it may have
  // waited.
  core::Error timeout(const NcclMember& late, const std::string& operation, std::chrono::milliseconds deadline) const;

 private:
  void serve();
  std::vector<std::shared_ptr<NcclMember>> members() const;
  std::optional<core::Error> trouble_of(NcclMember& member) const;
  void abort_all();
  void finish_all();

  const PeerFailure peer_failure_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::atomic<bool> failed_ = false;
  std::optional<core::Error> error_;
  std::vector<std::shared_ptr<NcclMember>> members_;
  core::Thread thread_;  // last, because it uses all of the above
};

}  // namespace trainyard::parallel
