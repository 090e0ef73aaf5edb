// A rank's connection to the hub of its process group, and the thread that serves it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/socket.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/process_group/group_message.h"
#include "trainyard/parallel/process_group/wake_event.h"

namespace trainyard::parallel {

struct GroupConnectionOptions {
  Hello hello{};
  RankDeadlines deadlines{};
  std::function<void(const core::Error& error)> last_resort{};  // as ProcessGroupOptions
  std::chrono::milliseconds grace = std::chrono::seconds(5);
};

// Any thread may use it.
class GroupConnection {
 public:
  GroupConnection(core::Socket socket, GroupConnectionOptions options);
  // Sends what is unsent, for a second at most.
  ~GroupConnection();

  void send(GroupMessage message, std::string body);
  // Blocks until the hub reports that all ranks have connected. Throws why they have not.
  void await_welcome();
  // Blocks until the texts of a call have arrived. Throws why the group has failed.
  SharedTexts await_texts(int64_t call);
  // Blocks until all ranks leave or the group has failed.
  void await_gone();

  // Returns whether a thread waits in one of these three, and what it waits for has not come: one that is held behind
  // the end of its wait does not count.
  bool waits() const;
  std::string operation() const;  // of the activity

  std::optional<std::string> note() const;
  std::optional<core::Error> failure() const;
  // Changes the activity that heartbeats report.
  void change_activity(const std::function<void(Activity&)>& change);
  // See ProcessGroup::watch_exchange().
  void watch_exchange(std::function<std::optional<int64_t>()> turns);

 private:
  void serve();
  void take(const core::Frame& frame);
  // Throws the failure, if there is one, else returns done(). Needs the mutex.
  template <typename Done>
  void await(Done done);
  void fail(const core::Error& error);
  void look_after_failure(std::chrono::steady_clock::time_point now);
  // Reports to the others when this process's exchange makes no progress. Needs the mutex.
  void look_after_exchange(std::chrono::steady_clock::time_point now);

  const GroupConnectionOptions options_;
  const WakeEvent wake_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::vector<std::pair<GroupMessage, std::string>> unsent_;
  Activity activity_;
  bool activity_changed_ = true, ending_ = false, welcome_ = false, gone_ = false;
  std::map<int64_t, SharedTexts> texts_;
  std::function<bool()> awaits_;  // whether what a thread waits for has come; empty: none waits
  std::optional<std::string> note_;
  std::optional<core::Error> failure_;
  std::function<std::optional<int64_t>()> exchange_turns_;
  // Used by the thread only:
  std::optional<int64_t> last_turn_;
  std::chrono::steady_clock::time_point turned_;
  core::FrameConnection connection_;
  Activity first_;  // last known activity of rank 0
  std::optional<std::chrono::steady_clock::time_point> failed_at_;
  bool resorted_ = false;
  core::Thread thread_;  // last, because it uses all of the above
};

}  // namespace trainyard::parallel
