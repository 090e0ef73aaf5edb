// A worker's connections to all servers: calls in parallel, transfers in chunks, heartbeats, and one error for all.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/process_group/liveness.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/servers/served_part.h"
#include "trainyard/parallel/servers/server_options.h"
#include "trainyard/parallel/servers/transport.h"
#include "trainyard/parallel/servers/wire.h"

namespace trainyard::parallel {

// Calls throw the first error of any server, or of fail().
class ServerConnections {
 public:
  explicit ServerConnections(ServerGroupOptions options);
  // Servers take this worker for dead unless it has left.
  ~ServerConnections();

  const ServerGroupOptions& options() const { return options_; }
  void join(wire::RegisterRequest request, int64_t total);

  using Encode = std::function<std::string(const wire::Sender& from)>;
  // Calls all servers at once, and returns the answer of the first, which is Progress or Done.
  wire::Progress ask_all(const char* operation, ServerCall call, const Encode& encode);
  // Does the same, and adds the time to waiting_seconds().
  wire::Progress ask_all_and_count(const char* operation, ServerCall call, const Encode& encode);
  // Send and receive the elements of a flat block, in chunks.
  void push(uint64_t round, const at::Tensor& gradients);
  void write(uint64_t target, const at::Tensor& values);
  void read(uint64_t target, uint64_t round, const at::Tensor& values);
  int64_t updates();  // any thread

  // Whether this worker waits for the others: in no meeting (parallel/process_group/liveness.h), in one that all of
  // them begin, or for what the last one has begun and answered before its end.
  enum class Meets : uint8_t { kNot, kAll, kInTheLast };
  // Says in heartbeats what this worker does, until the result dies.
  class Meeting {
   public:
    Meeting(ServerConnections& all, const char* operation, Meets meets);
    Meeting(const Meeting&) = delete;
    Meeting& operator=(const Meeting&) = delete;
    ~Meeting();

   private:
    ServerConnections& all_;
    const Meets meets_;
  };
  Meeting begin(const char* operation, Meets meets) { return {*this, operation, meets}; }
  // Returns how pushes, and what waits for their updates, meet: not in kAsynchronous.
  Meets pushes_meet(Meets meets) const;
  void set_step(int64_t step);

  void leave();
  void fail(const core::Error& error);  // any thread
  void fail_with(std::shared_ptr<ProcessGroup> processes);

  double waiting_seconds() const { return waiting_seconds_; }
  int64_t copied_bytes() const { return copied_bytes_; }
  std::vector<int64_t> boundaries() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Server {
    std::string name{};  // "parameter server 1 at 127.0.0.1:5001"
    std::unique_ptr<ServerChannel> channel{};
    wire::RegisterReply registered{};
    bool joined = false, reachable = true;     // guarded
    std::optional<Clock::time_point> beats{};  // guarded: since when a heartbeat is not answered
    std::string obstacle{};                    // guarded: why it could not be reached
  };
  struct Request {
    size_t server = 0;
    ServerCall call{};
    std::function<OutgoingMessage()> make{};
    std::function<void(const IncomingMessage&)> take{};
  };
  wire::Sender sender(const Server& server) const {
    return {.worker = static_cast<uint64_t>(options_.worker), .token = server.registered.token};
  }
  // Carries the requests out, several a server at a time, and returns when all are answered.
  void transfer(const std::vector<Request>& requests);
  // Starts a call, and does not wait for its end.
  void call_in_background(Server& server, ServerCall call, std::string head, std::function<void(CallOutcome)> done);
  // Turns the end of a call into an error, if it is one.
  std::optional<core::Error> error_of(Server& server, ServerCall call, const CallOutcome& outcome);
  bool try_to_join(const wire::RegisterRequest& request);  // returns whether all have joined
  void check_parts(int64_t total) const;
  void attend(Server& server);
  void run_heartbeats();
  void beat(Server& server);
  wire::BeatRequest state() const;  // without its sender; needs the lock
  void tell_servers();
  void end();
  // Sends the block to its servers, in chunks; `message` has all but the sender and where a chunk begins.
  template <typename Message>
  void send(ServerCall call, const Message& message, const at::Tensor& block);
  template <typename Visit>
  void for_each_chunk(const at::Tensor& block, Visit visit);

  const ServerGroupOptions options_;
  std::vector<Server> servers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<ProcessGroup> processes_;  // guarded: fails with this
  std::optional<core::Error> failure_;       // guarded
  size_t flights_ = 0;                       // guarded: calls that have not ended
  bool stops_ = false, left_ = false;        // guarded
  Activity activity_;                        // guarded
  uint64_t turns_ = 0;                       // guarded: counts what it does, with core::work_count()
  size_t awaited_ = 0;                       // guarded: calls whose answers a thread waits for
  std::atomic<double> waiting_seconds_ = 0;
  std::atomic<int64_t> copied_bytes_ = 0;
  std::unique_ptr<core::Thread> heartbeats_;
};

}  // namespace trainyard::parallel
