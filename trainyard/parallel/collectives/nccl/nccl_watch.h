// Watches over the ranks of this process, so that nothing waits for ever for one that is gone: a thread looks at what
// was called and is not done, and at what NCCL says of the peers. What goes wrong with one rank ends all of them.
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

// A rank and what it has called.
struct NcclMember {
  int rank = 0, size = 1;
  std::mutex mutex;  // guards what follows
  std::unique_ptr<NcclRank> handle;
  bool ended = false;              // `handle` takes no further call
  std::atomic<int64_t> calls = 0;  // written with the mutex
  struct Pending {
    std::unique_ptr<DeviceMark> mark;
    std::string operation;
    std::chrono::steady_clock::time_point since;
    std::chrono::milliseconds deadline;
  };
  std::deque<Pending> pending;  // handed over and not known to be done, in order

  // Forgets what is done. Needs the mutex.
  void drop_reached();
};

class NcclWatch {
 public:
  // Returns what another process has reported, if anything. Asked about once a second, on the watch's thread.
  using PeerFailure = std::function<std::optional<core::Error>()>;
  explicit NcclWatch(PeerFailure peer_failure);
  // Ends the ranks: together and in order, or at once where something has gone wrong.
  ~NcclWatch();

  void add(const std::shared_ptr<NcclMember>& member);

  // Ends all ranks with this error; the first one stays. Any thread, does not wait.
  void fail(const core::Error& error);
  void throw_if_failed() const;
  // Returns the error of a call that was not done in time: what it was, and for which ranks of this process it may have
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
  core::Thread thread_;  // last: it uses all of the above
};

}  // namespace trainyard::parallel
