#include "trainyard/parallel/servers/server_service.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/sockets/socket.h"
#include "trainyard/parallel/process_group/group_message.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

constexpr std::chrono::seconds kTimeToHear{1};

OutgoingMessage done() {
  return {};
}

void warn_of_other_machines(const ParameterServerOptions& options) {
  const std::string host = options.address.substr(0, options.address.rfind(':'));
  if (options.tls.used() || core::is_loopback(host.starts_with('[') ? host.substr(1, host.size() - 2) : host)) return;
  core::log::warning(
      "parameter server {} listens at {} without TLS: whoever reaches it can read and change the training; pass "
      "--tls_cert, --tls_key and --tls_ca",
      options.server, options.address);
}

// Returns how long workers keep a server waiting. A worker that waits for another server finds out first that this one
// is silent, and says so; servers hear nothing of each other, and would blame the worker.
RankDeadlines worker_deadlines(const ParameterServerOptions& options) {
  RankDeadlines deadlines = options.deadlines;
  if (options.cluster.servers > 1) deadlines.step += deadlines.step / 2;
  return deadlines;
}

// Returns what the judge is to know of a worker.
Activity activity_of(const wire::BeatRequest& beat, bool synchronous) {
  const bool works = beat.state == wire::WorkerState::kWorks;
  // Who works in the middle of a push keeps the others waiting. Answers, which are late where another worker holds the
  // updates, are no meeting where workers run at their own pace.
  const bool elsewhere = synchronous ? beat.state == wire::WorkerState::kWaitsForProcesses : !works;
  return {.operation = beat.operation,
          .step = beat.step,
          .begun = static_cast<int64_t>(beat.begun),
          .done = static_cast<int64_t>(works ? beat.begun : beat.done),
          .elsewhere = elsewhere ? 1 : 0};
}

}  // namespace

Error invalid_request(std::string problem, std::string where, std::string expected, std::string actual) {
  return {ErrorCode::kInvalidArgument,
          {.problem = std::move(problem),
           .where = std::move(where),
           .expected = std::move(expected),
           .actual = std::move(actual)}};
}

ServerService::ServerService(ParameterServerOptions options, ParameterServer::MakeOptimizers make_optimizers)
    : options_((options.validate(), std::move(options))),
      make_optimizers_(std::move(make_optimizers)),
      workers_(static_cast<size_t>(options_.cluster.workers)),
      liveness_(options_.cluster.workers, worker_deadlines(options_), Clock::now(), "worker",
                is_synchronous() ? RankPace::kTogether : RankPace::kOwn),
      pushes_(workers_.size()) {
  warn_of_other_machines(options_);
  listener_ = listen_for_workers(options_.address, options_.tls,
                                 [this](ServerCall call, const IncomingMessage& message, const Responder& responder) {
                                   handle(call, message, responder);
                                 });
  updater_ = std::make_unique<core::Thread>(
      core::ThreadOptions{.name = "server update", .intra_op_threads = options_.intra_op_threads},
      [this] { run_updates(); });
  watcher_ = std::make_unique<core::Thread>(core::ThreadOptions{.name = "server watch"}, [this] { watch(); });
}

ServerService::~ServerService() {
  Answers answers;
  bool has_failed = false;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    has_failed = failure_.has_value();
    if (!all_left()) {
      fail_locked({ErrorCode::kPeerFailed, {.problem = fmt::format("parameter server {} has ended", options_.server)}},
                  answers);
    }
    changed_.notify_all();
  }
  for (const auto& answer : answers) answer();
  updater_.reset();
  watcher_.reset();
  if (has_failed) await_told();
  listener_.reset();
}

// One that waits for nothing here would take the connection's end for the cause.
void ServerService::await_told() {
  const auto knows = [](const Worker& each) { return !each.came || each.left || each.closed || each.told; };
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kTimeToHear, [&] { return std::all_of(workers_.begin(), workers_.end(), knows); });
}

void ServerService::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return failure_ || all_left(); });
  if (failure_) throw Error(*failure_);
}

void ServerService::fail(const Error& error) {
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    fail_locked(error, answers);
  }
  for (const auto& answer : answers) answer();
}

void ServerService::fail_locked(const Error& error, Answers& answers) {
  if (failure_) return;
  failure_ = error;
  const auto refuse = [&](Responder& responder) {
    if (!responder) return false;
    answers.push_back([responder = std::exchange(responder, nullptr), error] { responder->refuse(error); });
    return true;
  };
  for (Worker& worker : workers_) {
    for (Responder* const each : {&worker.attend, &worker.apply, &worker.start, &worker.meet}) {
      if (refuse(*each)) worker.told = true;
    }
  }
  for (Waiting& waiting : waiting_) refuse(waiting.responder);
  waiting_.clear();
  queue_.clear();
  changed_.notify_all();
}

ParameterServer::Status ServerService::status() const {
  const std::lock_guard lock(mutex_);
  ParameterServer::Status status{
      .updates = updates_, .pushes = pushes_, .received_bytes = received_bytes_, .copied_bytes = copied_bytes_};
  if (part_) {
    status.begin = part_->begin();
    status.end = part_->end();
  }
  for (size_t w = 0; w < workers_.size(); ++w) {
    if (workers_[w].came && !workers_[w].left) status.workers.push_back(fmt::format("worker {}", w));
  }
  return status;
}

void ServerService::handle(ServerCall call, const IncomingMessage& message, const Responder& responder) {
  try {
    dispatch(call, message, responder);
  } catch (const Error& error) {
    responder->refuse(error);
  } catch (const std::exception& error) {
    responder->refuse({ErrorCode::kInternal, error.what()});
  }
}

void ServerService::dispatch(ServerCall call, const IncomingMessage& message, const Responder& responder) {
  switch (call) {
    case ServerCall::kRegister:
      return enroll(message, responder);
    case ServerCall::kAttend:
      return attend(wire::decode<wire::AttendRequest>(message).from, responder);
    case ServerCall::kBeat:
      return beat(wire::decode<wire::BeatRequest>(message), responder);
    case ServerCall::kStart:
      return start(wire::decode<wire::StartRequest>(message), responder);
    case ServerCall::kWrite:
      return write(message, responder);
    case ServerCall::kPush:
      return push(message, responder);
    case ServerCall::kApply:
      return apply(message, responder);
    case ServerCall::kRead:
      return read(message, responder);
    case ServerCall::kHold:
      return hold(wire::decode<wire::HoldRequest>(message), responder);
    case ServerCall::kMeet:
      return meet(wire::decode<wire::AttendRequest>(message).from, responder);
    case ServerCall::kStatus: {
      const wire::Sender from = wire::decode<wire::AttendRequest>(message).from;
      std::unique_lock lock(mutex_);
      worker_of(from);
      OutgoingMessage reply = progress(false);
      lock.unlock();
      return responder->reply(std::move(reply));
    }
    case ServerCall::kLeave:
      return leave(wire::decode<wire::AttendRequest>(message).from, responder);
    case ServerCall::kFail: {
      const auto request = wire::decode<wire::FailRequest>(message);
      const Error error = decode_error(request.error);
      {
        const std::lock_guard lock(mutex_);
        worker_of(request.from);
      }
      fail(error);
      return responder->reply(done());
    }
  }
}

ServerService::Worker& ServerService::worker_of(const wire::Sender& from) {
  Worker* const worker = from.worker < workers_.size() ? &workers_[from.worker] : nullptr;
  const bool known = worker != nullptr && worker->came && !worker->left && worker->token == from.token;
  if (failure_) {
    if (known) worker->told = true;
    changed_.notify_all();
    throw Error(*failure_);
  }
  if (known) return *worker;
  throw invalid_request("a message is not from a worker of this training",
                        fmt::format("parameter server {}", options_.server));
}

ServerService::Worker& ServerService::started_worker(const wire::Sender& from) {
  Worker& worker = worker_of(from);
  if (!started_) throw invalid_request("the chief has not started the training", fmt::format("worker {}", from.worker));
  return worker;
}

void ServerService::attend(const wire::Sender& from, const Responder& responder) {
  {
    const std::lock_guard lock(mutex_);
    Worker& worker = worker_of(from);
    if (worker.attend) throw invalid_request("a worker attends twice", fmt::format("worker {}", from.worker));
    worker.attend = responder;
  }
  responder->on_cancelled([this, index = static_cast<size_t>(from.worker)] { connection_closed(index); });
}

void ServerService::connection_closed(size_t worker) {
  const std::lock_guard lock(mutex_);
  workers_[worker].closed = true;
  changed_.notify_all();
  if (workers_[worker].left || stops_) return;
  liveness_.closed(static_cast<int>(worker), Clock::now());
  a_worker_closed_ = true;
  changed_.notify_all();  // the watcher judges
}

void ServerService::beat(const wire::BeatRequest& request, const Responder& responder) {
  {
    const std::lock_guard lock(mutex_);
    worker_of(request.from);
    liveness_.heard(static_cast<int>(request.from.worker), activity_of(request, is_synchronous()), Clock::now(),
                    request.work);
    // It may be older than a push that has overtaken it.
    note_step(request.from.worker);
  }
  responder->reply(done());
}

void ServerService::note_step(size_t worker) {
  const auto round = static_cast<int64_t>(workers_[worker].round);
  if (round > 0) liveness_.begun(static_cast<int>(worker), round);
}

void ServerService::meet(const wire::Sender& from, const Responder& responder) {
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    Worker& worker = worker_of(from);
    if (worker.meet) throw invalid_request("a worker meets the others twice", fmt::format("worker {}", from.worker));
    worker.meet = responder;
    end_meeting(answers);
  }
  for (const auto& answer : answers) answer();
}

void ServerService::end_meeting(Answers& answers) {
  const bool all = std::all_of(workers_.begin(), workers_.end(),
                               [](const Worker& each) { return each.meet != nullptr || each.left; });
  for (Worker& each : workers_) {
    if (all && each.meet) {
      answers.push_back([met = std::exchange(each.meet, nullptr)] { met->reply(done()); });
    }
  }
}

void ServerService::leave(const wire::Sender& from, const Responder& responder) {
  Responder attends;
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    Worker& worker = worker_of(from);
    worker.left = true;
    worker.holds = false;
    liveness_.left(static_cast<int>(from.worker));
    attends = std::exchange(worker.attend, nullptr);
    end_meeting(answers);  // it may be the one that the others wait for
    const bool others_wait =
        std::any_of(workers_.begin(), workers_.end(), [](const Worker& each) { return each.applied && !each.left; });
    if (const auto gone = worker_that_left(); gone && others_wait && is_synchronous()) fail_locked(*gone, answers);
    changed_.notify_all();
  }
  if (attends) attends->reply(done());
  responder->reply(done());
  for (const auto& answer : answers) answer();
}

bool ServerService::all_left() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& each) { return each.left; });
}

OutgoingMessage ServerService::progress(bool with_counts, bool found_inf) const {
  wire::Progress progress{.updates = static_cast<uint64_t>(updates_), .found_inf = found_inf};
  if (with_counts) progress.counts = part_->counts();
  return {.head = encode(progress)};
}

void ServerService::watch() {
  const auto interval = heartbeat_interval(options_.deadlines);
  Clock::time_point due_since = Clock::now();  // of update `due`, whether the updater has begun it or not
  uint64_t due = 0;
  std::unique_lock lock(mutex_);
  while (!stops_ && !failure_) {
    changed_.wait_for(lock, interval, [this] { return stops_ || failure_ || a_worker_closed_; });
    if (stops_ || failure_) return;
    a_worker_closed_ = false;
    const auto now = Clock::now();
    std::optional<Error> error = liveness_.judge(now);
    const bool is_due = updating_since_ || can_update();
    if (!is_due || due != round_) {
      due_since = now;
      due = round_;
    }
    if (!error && now - due_since > options_.deadlines.step) {
      error = Error(ErrorCode::kPeerFailed,
                    {.problem = fmt::format("parameter server {} does not go on", options_.server),
                     .where = fmt::format("update {}", updates_),
                     .actual = fmt::format("it has been due for {:.3g} s", core::seconds_since(due_since)),
                     .remedy = fmt::format("look at what parameter server {} said last", options_.server)});
    }
    if (!error) continue;
    Answers answers;
    fail_locked(*error, answers);
    lock.unlock();
    for (const auto& answer : answers) answer();
    return;
  }
}

}  // namespace trainyard::parallel
