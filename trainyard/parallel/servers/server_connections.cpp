#include "trainyard/parallel/servers/server_connections.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/work_count.h"
#include "trainyard/parallel/process_group/group_message.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;
using std::chrono::milliseconds;

namespace {

constexpr const char* kComputes = "compute";
constexpr size_t kWindow = 4;  // chunks on their way to or from a server
constexpr milliseconds kBetweenTries{200}, kFirstReport{2000}, kBetweenReports{10000}, kTimeToTell{1000};

// The servers judge who keeps a worker waiting that waits for them, not the process group. A wait ends with the last
// answer, on the transport's thread: a thread that is held behind it keeps others waiting, and the group may say so.
class WaitElsewhere {
 public:
  explicit WaitElsewhere(std::shared_ptr<ProcessGroup> processes) : processes_(std::move(processes)) {}
  WaitElsewhere(const WaitElsewhere&) = delete;
  WaitElsewhere& operator=(const WaitElsewhere&) = delete;
  ~WaitElsewhere() { set(false); }

  void set(bool waits) {
    if (std::exchange(waits_, waits) == waits || !processes_) return;
    waits ? processes_->begin_wait_elsewhere() : processes_->end_wait_elsewhere();
  }

 private:
  const std::shared_ptr<ProcessGroup> processes_;
  bool waits_ = false;
};

}  // namespace

ServerConnections::ServerConnections(ServerGroupOptions options)
    : options_((options.validate(), std::move(options))), servers_(options_.addresses.size()) {
  for (size_t s = 0; s < servers_.size(); ++s) {
    servers_[s].name = fmt::format("parameter server {} at {}", s, options_.addresses[s]);
    servers_[s].channel = connect_to_server(options_.addresses[s], options_.tls);
  }
  heartbeats_ =
      std::make_unique<core::Thread>(core::ThreadOptions{.name = "server beats"}, [this] { run_heartbeats(); });
}

ServerConnections::~ServerConnections() {
  end();
}

// Returns when no call is left.
void ServerConnections::end() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    changed_.notify_all();
  }
  heartbeats_.reset();
  for (Server& server : servers_) server.channel->cancel();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return flights_ == 0; });
}

void ServerConnections::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!failure_ && !left_) failure_ = error;
  changed_.notify_all();
}

void ServerConnections::fail_with(std::shared_ptr<ProcessGroup> processes) {
  const std::lock_guard lock(mutex_);
  processes_ = std::move(processes);
}

std::optional<Error> ServerConnections::error_of(Server& server, ServerCall call, const CallOutcome& outcome) {
  switch (outcome.kind) {
    case CallOutcome::Kind::kAnswered:
      return std::nullopt;
    case CallOutcome::Kind::kRefused:
      return outcome.error;
    case CallOutcome::Kind::kCancelled:
      return Error(ErrorCode::kCancelled, {.problem = "a call was given up", .where = server.name});
    case CallOutcome::Kind::kUnreachable:
      break;
  }
  const std::lock_guard lock(mutex_);
  server.reachable = false;
  return Error(ErrorCode::kPeerFailed, {.problem = server.name + " has died",
                                        .where = described(activity_),
                                        .actual = fmt::format("its connection has closed ({}: {})",
                                                              server_call_name(call), outcome.error->detail().problem),
                                        .remedy = "look at what it said last"});
}

void ServerConnections::call_in_background(Server& server, ServerCall call, std::string head,
                                           std::function<void(CallOutcome)> done) {
  {
    const std::lock_guard lock(mutex_);
    ++flights_;
  }
  server.channel->call(call, {.head = std::move(head)}, [this, done = std::move(done)](CallOutcome outcome) {
    done(std::move(outcome));
    const std::lock_guard lock(mutex_);
    --flights_;
    changed_.notify_all();
  });
}

void ServerConnections::transfer(const std::vector<Request>& requests) {
  WaitElsewhere wait([this] {
    const std::lock_guard lock(mutex_);
    return processes_;
  }());
  std::vector<std::vector<size_t>> queues(servers_.size());
  for (size_t i = requests.size(); i-- > 0;) queues[requests[i].server].push_back(i);
  std::vector<size_t> flying(servers_.size());
  size_t own_flights = 0, unanswered = requests.size(), next_server = 0;
  const auto next = [&]() -> std::optional<size_t> {
    for (size_t i = 0; i < servers_.size(); ++i) {
      const size_t s = (next_server + i) % servers_.size();
      if (queues[s].empty() || flying[s] == kWindow) continue;
      next_server = s + 1;
      const size_t request = queues[s].back();
      queues[s].pop_back();
      return request;
    }
    return std::nullopt;
  };
  std::unique_lock lock(mutex_);
  while (unanswered > 0) {
    if (failure_) {
      changed_.wait(lock, [&] { return own_flights == 0; });
      throw Error(*failure_);
    }
    const std::optional<size_t> index = next();
    if (!index) {
      changed_.wait(lock);
      continue;
    }
    const Request& request = requests[*index];
    Server& server = servers_[request.server];
    ++flying[request.server];
    ++own_flights;
    ++flights_;
    ++awaited_;
    wait.set(true);
    lock.unlock();
    server.channel->call(request.call, request.make(), [&, this](const CallOutcome& outcome) {
      std::optional<Error> error = error_of(server, request.call, outcome);
      if (!error) {
        try {
          request.take(outcome.message);
        } catch (const Error& invalid) {
          error = invalid.in(server.name);
        }
      }
      const std::lock_guard answered(mutex_);
      if (error && !failure_) failure_ = std::move(error);
      --flying[request.server];
      --own_flights;
      --unanswered;
      --flights_;
      --awaited_;
      wait.set(own_flights > 0);
      changed_.notify_all();
    });
    lock.lock();
  }
  if (failure_) throw Error(*failure_);
}

wire::Progress ServerConnections::ask_all(const char* operation, ServerCall call, const Encode& encode) {
  const Meeting meeting = begin(operation, Meets::kNot);
  wire::Progress first;
  std::vector<Request> requests;
  for (size_t s = 0; s < servers_.size(); ++s) {
    requests.push_back({.server = s,
                        .call = call,
                        .make = [&, s] { return OutgoingMessage{.head = encode(sender(servers_[s]))}; },
                        .take =
                            [&first, s](const IncomingMessage& message) {
                              const auto progress = wire::decode<wire::Progress>(message);
                              if (s == 0) first = progress;
                            }});
  }
  transfer(requests);
  return first;
}

wire::Progress ServerConnections::ask_all_and_count(const char* operation, ServerCall call, const Encode& encode) {
  const auto begin = Clock::now();
  wire::Progress progress = ask_all(operation, call, encode);
  waiting_seconds_ = waiting_seconds_ + core::seconds_since(begin);
  return progress;
}

int64_t ServerConnections::updates() {
  {
    const std::lock_guard lock(mutex_);
    if (!servers_[0].joined) return 0;
  }
  wire::Progress progress;
  transfer(
      {{.call = ServerCall::kStatus,
        .make = [this] { return OutgoingMessage{.head = encode(wire::AttendRequest{.from = sender(servers_[0])})}; },
        .take = [&](const IncomingMessage& message) { progress = wire::decode<wire::Progress>(message); }}});
  return static_cast<int64_t>(progress.updates);
}

template <typename Visit>
void ServerConnections::for_each_chunk(const at::Tensor& block, Visit visit) {
  if (!block.is_cpu() || !block.is_contiguous()) {
    throw Error(ErrorCode::kInternal, "servers need blocks in host memory without gaps");
  }
  const size_t width = block.element_size();
  const uint64_t chunk = wire::kChunkBytes / width;
  for (size_t s = 0; s < servers_.size(); ++s) {
    const wire::RegisterReply& part = servers_[s].registered;
    for (uint64_t begin = part.begin; begin < part.end; begin += chunk) {
      const uint64_t count = std::min(chunk, part.end - begin);
      visit(s, begin, count, static_cast<size_t>(begin) * width, static_cast<size_t>(count) * width);
    }
  }
}

template <typename Message>
void ServerConnections::send(ServerCall call, const Message& message, const at::Tensor& block) {
  const auto keep = std::make_shared<const at::Tensor>(block);
  const auto* const data = static_cast<const std::byte*>(block.const_data_ptr());
  std::vector<Request> requests;
  for_each_chunk(block, [&](size_t s, uint64_t begin, uint64_t, size_t offset, size_t bytes) {
    Message chunk = message;
    chunk.begin = begin;
    requests.push_back({.server = s,
                        .call = call,
                        .make =
                            [=, this]() mutable {
                              chunk.from = sender(servers_[s]);
                              return OutgoingMessage{
                                  .head = encode(chunk, bytes), .data = data + offset, .bytes = bytes, .keep = keep};
                            },
                        .take = [](const IncomingMessage&) {}});
  });
  transfer(requests);
}

void ServerConnections::push(uint64_t round, const at::Tensor& gradients) {
  send(ServerCall::kPush, wire::PushRequest{.round = round}, gradients);
}

void ServerConnections::write(uint64_t target, const at::Tensor& values) {
  send(ServerCall::kWrite, wire::WriteRequest{.target = target}, values);
}

void ServerConnections::read(uint64_t target, uint64_t round, const at::Tensor& values) {
  auto* const data = static_cast<std::byte*>(values.mutable_data_ptr());
  std::vector<Request> requests;
  for_each_chunk(values, [&](size_t s, uint64_t begin, uint64_t count, size_t offset, size_t bytes) {
    requests.push_back(
        {.server = s,
         .call = ServerCall::kRead,
         .make =
             [=, this] {
               return OutgoingMessage{
                   .head = encode(wire::ReadRequest{
                       .from = sender(servers_[s]), .round = round, .target = target, .begin = begin, .count = count})};
             },
         .take =
             [=, this](const IncomingMessage& message) {
               const wire::Data sent = wire::decode_read_reply(message);
               if (sent.bytes != bytes) {
                 throw Error(ErrorCode::kCorruptData, {.problem = "a server answers with another number of bytes",
                                                       .expected = std::to_string(bytes),
                                                       .actual = std::to_string(sent.bytes)});
               }
               message.copy(sent.offset, data + offset, bytes);
               copied_bytes_ += static_cast<int64_t>(bytes);
             }});
  });
  transfer(requests);
}

std::vector<int64_t> ServerConnections::boundaries() const {
  std::vector<int64_t> all;
  for (const Server& server : servers_) all.push_back(static_cast<int64_t>(server.registered.begin));
  all.push_back(static_cast<int64_t>(servers_.back().registered.end));
  return all;
}

bool ServerConnections::try_to_join(const wire::RegisterRequest& request) {
  for (size_t s = 0; s < servers_.size(); ++s) {
    Server& server = servers_[s];
    {
      const std::lock_guard lock(mutex_);
      if (server.joined || server.beats) continue;
      server.beats = Clock::now();  // its call is on the way
    }
    wire::RegisterRequest own = request;
    own.server = s;
    call_in_background(server, ServerCall::kRegister, encode(own), [this, &server](CallOutcome outcome) {
      const bool unreachable = outcome.kind == CallOutcome::Kind::kUnreachable;
      std::optional<Error> error = unreachable ? std::nullopt : error_of(server, ServerCall::kRegister, outcome);
      wire::RegisterReply reply;
      if (!error && !unreachable) {
        try {
          reply = wire::decode<wire::RegisterReply>(outcome.message);
        } catch (const Error& invalid) {
          error = invalid.in(server.name);
        }
      }
      const std::lock_guard lock(mutex_);
      server.beats.reset();
      if (unreachable) {
        server.obstacle = outcome.error->detail().problem;
      } else if (error) {
        if (!failure_) failure_ = error->in(server.name);
      } else {
        server.registered = std::move(reply);
        server.joined = true;
      }
    });
  }
  std::unique_lock lock(mutex_);
  const auto all_joined = [this] {
    return std::all_of(servers_.begin(), servers_.end(), [](const Server& server) { return server.joined; });
  };
  changed_.wait_for(lock, kBetweenTries, [&] { return failure_ || all_joined(); });
  if (failure_) throw Error(*failure_);
  return all_joined();
}

void ServerConnections::join(wire::RegisterRequest request, int64_t total) {
  const ClusterOptions& cluster = options_.cluster;
  request.worker = static_cast<uint64_t>(options_.worker);
  request.workers = static_cast<uint64_t>(cluster.workers);
  request.servers = static_cast<uint64_t>(cluster.servers);
  request.replicas = static_cast<uint64_t>(cluster.replicas_per_worker);
  request.mode = static_cast<uint64_t>(cluster.mode);
  request.reduction = static_cast<uint64_t>(cluster.reduction);
  request.variables = wire::variables_number(cluster.variables_as);
  const auto began = Clock::now();
  auto next_report = began + kFirstReport;
  std::vector<bool> attended(servers_.size());
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      ++turns_;
    }
    const bool all = try_to_join(request);
    std::string missing, obstacle;
    for (size_t s = 0; s < servers_.size(); ++s) {
      std::unique_lock lock(mutex_);
      if (!servers_[s].joined) {
        missing += (missing.empty() ? "" : ", ") + servers_[s].name;
        obstacle = servers_[s].obstacle;
      } else if (!attended[s]) {
        attended[s] = true;
        lock.unlock();
        attend(servers_[s]);
      }
    }
    if (all) break;
    const auto now = Clock::now();
    if (now - began > options_.deadlines.start) {
      const Error error(ErrorCode::kTimeout,
                        {.problem = fmt::format("worker {} has waited {:.3g} s in vain for {}", options_.worker,
                                                core::seconds_since(began), missing),
                         .where = "start",
                         .actual = obstacle.empty() ? "no answer" : obstacle,
                         .remedy = "look whether it runs, and what it said last"});
      fail(error);
      throw Error(error);
    }
    if (now < next_report) continue;
    next_report = now + kBetweenReports;
    core::log::info("worker {} waits for {} ({:.0f} s)", options_.worker, missing, core::seconds_since(began));
  }
  check_parts(total);
}

void ServerConnections::check_parts(int64_t total) const {
  uint64_t end = 0;
  for (const Server& server : servers_) {
    const wire::RegisterReply& part = server.registered;
    const bool fits = part.begin == end && part.end >= part.begin && part.total == static_cast<uint64_t>(total) &&
                      part.slots == servers_.front().registered.slots;
    if (!fits) {
      throw Error(ErrorCode::kCorruptData, {.problem = "servers do not divide the parameters as they must",
                                            .where = server.name,
                                            .expected = fmt::format("elements from {} on, of {}", end, total),
                                            .actual = fmt::format("[{}, {}) of {}", part.begin, part.end, part.total),
                                            .remedy = "pass the same flags to all servers"});
    }
    end = part.end;
  }
  if (end != static_cast<uint64_t>(total)) {
    throw Error(ErrorCode::kCorruptData, {.problem = "servers do not hold all parameters",
                                          .expected = std::to_string(total),
                                          .actual = std::to_string(end)});
  }
}

void ServerConnections::attend(Server& server) {
  call_in_background(server, ServerCall::kAttend, encode(wire::AttendRequest{.from = sender(server)}),
                     [this, &server](const CallOutcome& outcome) {
                       if (outcome.kind == CallOutcome::Kind::kCancelled) return;
                       if (const auto error = error_of(server, ServerCall::kAttend, outcome)) fail(*error);
                     });
}

wire::BeatRequest ServerConnections::state() const {
  wire::BeatRequest state{.operation = activity_.operation,
                          .step = activity_.step,
                          .begun = static_cast<uint64_t>(activity_.begun),
                          .done = static_cast<uint64_t>(activity_.done),
                          .work = turns_ + core::work_count()};
  if (awaited_ > 0) {
    state.state = wire::WorkerState::kWaitsForServers;
  } else if (processes_ && processes_->waits()) {
    state.state = wire::WorkerState::kWaitsForProcesses;
  }
  // Between two pushes the process knows better what it does.
  if (processes_ && state.operation == kComputes) state.operation = processes_->operation();
  state.operation.resize(std::min(state.operation.size(), wire::kLongestOperation));
  return state;
}

void ServerConnections::beat(Server& server) {
  wire::BeatRequest request;
  {
    const std::lock_guard lock(mutex_);
    if (!server.joined || server.beats) return;
    server.beats = Clock::now();
    request = state();
  }
  request.from = sender(server);
  call_in_background(server, ServerCall::kBeat, encode(request), [this, &server](const CallOutcome& outcome) {
    const bool given_up = outcome.kind == CallOutcome::Kind::kCancelled;
    const auto error = given_up ? std::nullopt : error_of(server, ServerCall::kBeat, outcome);
    {
      const std::lock_guard lock(mutex_);
      server.beats.reset();
    }
    if (error) fail(*error);
  });
}

void ServerConnections::run_heartbeats() {
  const milliseconds interval = heartbeat_interval(options_.deadlines);
  while (true) {
    for (Server& server : servers_) beat(server);
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, interval, [this] { return stops_ || failure_; });
    if (!failure_ && !left_ && processes_) failure_ = processes_->reported();
    if (stops_ && !failure_) return;
    const auto now = Clock::now();
    for (Server& server : servers_) {
      if (failure_ || !server.joined || !server.beats || now - *server.beats <= options_.deadlines.step) continue;
      server.reachable = false;
      failure_ = Error(ErrorCode::kPeerFailed,
                       {.problem = server.name + " does not answer",
                        .where = described(activity_),
                        .actual = fmt::format("no heartbeat for {:.3g} s", core::seconds_since(*server.beats)),
                        .remedy = "look at what it said last"});
    }
    if (!failure_) continue;
    if (processes_ && !processes_->reported()) processes_->report(*failure_);
    lock.unlock();
    tell_servers();
    for (Server& server : servers_) server.channel->cancel();
    const std::lock_guard woken(mutex_);
    changed_.notify_all();
    return;
  }
}

// Lets the servers that are left know why this worker ends.
void ServerConnections::tell_servers() {
  std::vector<Server*> told;
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    text = encode(*failure_);
    for (Server& server : servers_) {
      if (server.joined && server.reachable) told.push_back(&server);
    }
  }
  const auto waiting = std::make_shared<std::atomic<size_t>>(told.size());
  for (Server* const server : told) {
    call_in_background(*server, ServerCall::kFail, encode(wire::FailRequest{.from = sender(*server), .error = text}),
                       [waiting](const CallOutcome&) { --*waiting; });
  }
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kTimeToTell, [&] { return *waiting == 0; });
}

void ServerConnections::leave() {
  {
    const std::lock_guard lock(mutex_);
    if (left_ || failure_) return;
    left_ = true;
  }
  const auto waiting = std::make_shared<std::atomic<size_t>>(servers_.size());
  for (Server& server : servers_) {
    call_in_background(server, ServerCall::kLeave, encode(wire::AttendRequest{.from = sender(server)}),
                       [waiting](const CallOutcome&) { --*waiting; });
  }
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, options_.deadlines.step, [&] { return *waiting == 0; });
  lock.unlock();
  end();
}

ServerConnections::Meets ServerConnections::pushes_meet(Meets meets) const {
  return options_.cluster.mode == ServerMode::kAsynchronous ? Meets::kNot : meets;
}

ServerConnections::Meeting::Meeting(ServerConnections& all, const char* operation, Meets meets)
    : all_(all), meets_(meets) {
  const std::lock_guard lock(all_.mutex_);
  all_.activity_.operation = operation;
  ++all_.turns_;
  if (meets_ == Meets::kAll) ++all_.activity_.begun;
  if (meets_ == Meets::kInTheLast) --all_.activity_.done;
}

ServerConnections::Meeting::~Meeting() {
  const std::lock_guard lock(all_.mutex_);
  all_.activity_.operation = kComputes;
  ++all_.turns_;
  if (meets_ != Meets::kNot) ++all_.activity_.done;
}

void ServerConnections::set_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  activity_.step = step;
}

}  // namespace trainyard::parallel
