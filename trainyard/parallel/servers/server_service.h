// The calls of a parameter server, and its threads: one that updates, one that watches over workers. Messages come on
// the transport's threads, which copy elements and answer; nothing else computes there.
#pragma once

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

#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/process_group/liveness.h"
#include "trainyard/parallel/servers/parameter_server.h"
#include "trainyard/parallel/servers/served_part.h"
#include "trainyard/parallel/servers/transport.h"
#include "trainyard/parallel/servers/wire.h"

namespace trainyard::parallel {

// Returns the error of a request that the server refuses.
[[nodiscard]] core::Error invalid_request(std::string problem, std::string where, std::string expected = "",
                                          std::string actual = "");

class ServerService {
 public:
  ServerService(ParameterServerOptions options, ParameterServer::MakeOptimizers make_optimizers);
  ~ServerService();

  uint16_t port() const { return listener_->port(); }
  void wait();
  void fail(const core::Error& error);
  ParameterServer::Status status() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Responder = std::shared_ptr<ServerResponder>;
  // What is called when no lock is held: gRPC may run what follows an answer on the thread that gives it.
  using Answers = std::vector<std::function<void()>>;

  // A call that waits for the end of an update.
  struct Waiting {
    std::function<void()> again{};  // handles it again, when no lock is held
    Responder responder{};
    size_t worker = 0;
  };
  struct Worker {
    bool came = false, left = false, holds = false;
    bool closed = false, told = false;  // its connection has closed; it has been told why all has failed
    uint64_t token = 0;
    uint64_t round = 0;            // of its next push
    std::vector<uint8_t> arrived;  // by chunk of its block
    size_t complete = 0;           // chunks that have been copied
    bool applied = false;          // its push is complete, and not yet a part of an update
    wire::ApplyRequest settings{};
    Responder apply{}, attend{}, start{}, meet{};
    size_t waiting = 0;  // calls in waiting_
  };

  void handle(ServerCall call, const IncomingMessage& message, const Responder& responder);
  void dispatch(ServerCall call, const IncomingMessage& message, const Responder& responder);
  void enroll(const IncomingMessage& message, const Responder& responder);
  // Returns nothing once all workers have left. Throws for a worker that is refused.
  std::optional<wire::RegisterReply> admit(const wire::RegisterRequest& request);
  void attend(const wire::Sender& from, const Responder& responder);
  void beat(const wire::BeatRequest& request, const Responder& responder);
  void start(const wire::StartRequest& request, const Responder& responder);
  void write(const IncomingMessage& message, const Responder& responder);
  void push(const IncomingMessage& message, const Responder& responder);
  void apply(const IncomingMessage& message, const Responder& responder);
  void read(const IncomingMessage& message, const Responder& responder);
  void hold(const wire::HoldRequest& request, const Responder& responder);
  void hold_again(const wire::HoldRequest& request, const Responder& responder);
  void meet(const wire::Sender& from, const Responder& responder);
  void leave(const wire::Sender& from, const Responder& responder);
  void connection_closed(size_t worker);
  // Waits until all workers that are there have been told why all has failed, which their next call is.
  void await_told();

  // All that follow need the lock.
  Worker& worker_of(const wire::Sender& from);       // throws for an unknown peer, and once all has failed
  Worker& started_worker(const wire::Sender& from);  // throws before the chief has started
  void note_step(size_t worker);                     // for the judge: heartbeats may be older than pushes
  void require_range(uint64_t begin, size_t bytes, bool chunk) const;  // throws for elements that are not a chunk's
  // Returns whether a push of `round` is the worker's next and can be taken now; false: once the next update is over.
  bool takes_push(const Worker& worker, uint64_t index, uint64_t round) const;
  void wait_for_update(Worker& worker, Waiting waiting);
  bool can_update() const;
  bool all_left() const;
  bool is_synchronous() const { return options_.cluster.mode != ServerMode::kAsynchronous; }
  OutgoingMessage progress(bool with_counts, bool found_inf = false) const;
  wire::ApplyRequest agreed_settings(const std::vector<size_t>& workers) const;
  // Throws where two workers do not mean the same update.
  void require_same_update(size_t first, size_t other) const;
  std::optional<core::Error> worker_that_left() const;
  // Answers the workers that meet when all that are left have come.
  void end_meeting(Answers& answers);
  void fail_locked(const core::Error& error, Answers& answers);

  void run_updates();
  void update_once(std::unique_lock<std::mutex>& lock);
  void watch();

  const ParameterServerOptions options_;
  const ParameterServer::MakeOptimizers make_optimizers_;
  mutable std::mutex mutex_;  // guards all that follows, up to values_mutex_
  std::condition_variable changed_;
  std::shared_ptr<ServedPart> part_;
  std::vector<Worker> workers_;
  std::deque<size_t> queue_;  // kAsynchronous: workers whose pushes are to be applied
  std::deque<Waiting> waiting_;
  bool started_ = false, stops_ = false, a_worker_closed_ = false;
  bool chief_pushed_ = false;
  uint64_t round_ = 0;   // updates since the server began
  int64_t updates_ = 0;  // of the training
  std::optional<Clock::time_point> updating_since_;
  std::optional<core::Error> failure_;
  Liveness liveness_;
  int64_t received_bytes_ = 0, copied_bytes_ = 0;
  std::vector<int64_t> pushes_;
  // Held by updates and by those who read or write values while updates may run. Locked before mutex_, never behind it.
  std::mutex values_mutex_;
  std::unique_ptr<ServerListener> listener_;
  std::unique_ptr<core::Thread> updater_, watcher_;
};

class ParameterServer::Service : public ServerService {
 public:
  using ServerService::ServerService;
};

}  // namespace trainyard::parallel
