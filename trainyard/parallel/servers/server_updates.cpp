// The part of a server's service that moves and updates elements.
#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/sockets/random_token.h"
#include "trainyard/parallel/servers/optimizer_settings.h"
#include "trainyard/parallel/servers/server_service.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

constexpr size_t kMostWaitingCalls = 64;  // of one worker

enum : uint8_t { kMissing, kCopying };

std::string name_of(uint64_t worker) {
  return fmt::format("worker {}", worker);
}

Error other_step(uint64_t worker, uint64_t round) {
  return invalid_request("values of another step are refused", name_of(worker), "", fmt::format("step {}", round));
}

uint64_t random_number() {
  constexpr size_t kDigits = 16;
  return std::stoull(core::random_token().substr(0, kDigits), nullptr, kDigits);
}

uint64_t chunk_elements(const ServedPart& part) {
  return wire::kChunkBytes / part.width();
}

size_t chunk_count(const ServedPart& part) {
  const auto elements = static_cast<uint64_t>(part.end() - part.begin());
  return (elements + chunk_elements(part) - 1) / chunk_elements(part);
}

// Throws unless the worker was started as this server was.
void require_same_cluster(const wire::RegisterRequest& request, const ParameterServerOptions& options) {
  const ClusterOptions& own = options.cluster;
  const auto same = [&](const char* what, uint64_t theirs, int64_t ours) {
    if (theirs == static_cast<uint64_t>(ours)) return;
    throw Error(
        ErrorCode::kInvalidArgument,
        {.problem = fmt::format("a worker and parameter server {} belong to different trainings", options.server),
         .where = what,
         .expected = std::to_string(ours),
         .actual = std::to_string(theirs),
         .remedy = "pass the same flags to all processes"});
  };
  same("version of the messages", request.version, wire::kVersion);
  same("number of workers", request.workers, own.workers);
  same("number of parameter servers", request.servers, own.servers);
  same("index of the parameter server", request.server, options.server);
  same("replicas of a worker", request.replicas, own.replicas_per_worker);
  same("mode", request.mode, static_cast<int64_t>(own.mode));
  same("reduction of gradients", request.reduction, static_cast<int64_t>(own.reduction));
  same("16-bit type of variables (0 none, 1 Half, 2 BFloat16)", request.variables,
       static_cast<int64_t>(wire::variables_number(own.variables_as)));
  if (request.worker >= static_cast<uint64_t>(own.workers)) {
    throw invalid_request("the cluster has no such worker", "registration", fmt::format("0 to {}", own.workers - 1),
                          std::to_string(request.worker));
  }
}

}  // namespace

void ServerService::enroll(const IncomingMessage& message, const Responder& responder) {
  const auto request = wire::decode<wire::RegisterRequest>(message);
  std::optional<wire::RegisterReply> reply;
  try {
    reply = admit(request);
  } catch (const Error& error) {
    // The worker ends, and this server waits for another one, until its deadline if none comes.
    core::log::warning("parameter server {} refuses {}: {}", options_.server, name_of(request.worker), error.what());
    throw;
  }
  if (reply) responder->reply({.head = encode(*reply)});
}

std::optional<wire::RegisterReply> ServerService::admit(const wire::RegisterRequest& request) {
  const std::lock_guard lock(mutex_);
  // A worker of the next training at this address, which came before this server has closed and may have other flags.
  // Without an answer it hears that the server has ended, and tries again.
  if (all_left()) return std::nullopt;
  require_same_cluster(request, options_);
  if (failure_) throw Error(*failure_);
  Worker& worker = workers_[request.worker];
  if (worker.left) throw invalid_request("a worker that has left cannot join again", name_of(request.worker));
  if (worker.came) throw invalid_request("two processes are the same worker", name_of(request.worker));
  // A worker that is refused decides nothing for those that come after it.
  const auto part = part_ != nullptr ? part_ : std::make_shared<ServedPart>(request, options_, make_optimizers_);
  require_same_settings(part->settings(), request.settings,
                        fmt::format("parameter server {}, {}", options_.server, name_of(request.worker)));
  if (const std::string name = part->difference(request); !name.empty()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "workers have declared different variables",
                                              .where = name_of(request.worker) + ", " + name,
                                              .expected = "those of the worker that came first",
                                              .remedy = "pass the same flags to all processes"});
  }
  part_ = part;
  worker.came = true;
  worker.token = random_number();
  worker.arrived.assign(chunk_count(*part_), kMissing);
  liveness_.heard(static_cast<int>(request.worker), {}, Clock::now());
  return wire::RegisterReply{.token = worker.token,
                             .begin = static_cast<uint64_t>(part_->begin()),
                             .end = static_cast<uint64_t>(part_->end()),
                             .total = static_cast<uint64_t>(part_->total()),
                             .slots = part_->slots()};
}

void ServerService::require_range(uint64_t begin, size_t bytes, bool chunk) const {
  const auto first = static_cast<uint64_t>(part_->begin()), end = static_cast<uint64_t>(part_->end());
  const uint64_t elements = bytes / part_->width();
  const bool inside = begin >= first && begin < end && elements > 0 && elements <= end - begin &&
                      bytes <= wire::kChunkBytes && bytes % part_->width() == 0;
  const uint64_t whole = chunk_elements(*part_);
  if (inside && (!chunk || ((begin - first) % whole == 0 && elements == std::min(whole, end - begin)))) return;
  throw invalid_request("a message is about elements that it must not be about",
                        fmt::format("parameter server {}", options_.server), fmt::format("of [{}, {})", first, end),
                        fmt::format("{} bytes from {} on", bytes, begin));
}

void ServerService::start(const wire::StartRequest& request, const Responder& responder) {
  Answers answers;
  {
    const std::lock_guard values(values_mutex_);
    const std::lock_guard lock(mutex_);
    Worker& worker = worker_of(request.from);
    if (request.from.worker != 0) {
      if (worker.start) throw invalid_request("a worker starts twice", name_of(request.from.worker));
      worker.start = responder;
    } else {
      if (request.updates > static_cast<uint64_t>(INT64_MAX)) throw invalid_request("an impossible step", "start");
      part_->set_counts(request.counts);
      part_->start();
      updates_ = static_cast<int64_t>(request.updates);
      started_ = true;
      answers.push_back([responder, reply = progress(false)] { responder->reply(reply); });
    }
    for (Worker& each : workers_) {
      if (!started_ || !each.start) continue;
      answers.push_back([waits = std::exchange(each.start, nullptr), reply = progress(false)] { waits->reply(reply); });
    }
  }
  for (const auto& answer : answers) answer();
}

void ServerService::write(const IncomingMessage& message, const Responder& responder) {
  wire::Data data;
  const auto request = wire::decode<wire::WriteRequest>(message, data);
  {
    const std::lock_guard values(values_mutex_);
    const std::lock_guard lock(mutex_);
    worker_of(request.from);
    if (request.from.worker != 0) {
      throw invalid_request("only the chief writes values", name_of(request.from.worker));
    }
    require_range(request.begin, data.bytes, false);
    std::byte* const to = part_->elements(request.target, request.begin);
    if (to == nullptr) throw invalid_request("there is no such slot", fmt::format("target {}", request.target));
    message.copy(data.offset, to, data.bytes);
    if (request.target == wire::kStagedValues) part_->staged_written();
    received_bytes_ += static_cast<int64_t>(data.bytes);
    copied_bytes_ += static_cast<int64_t>(data.bytes);
  }
  responder->reply({});
}

bool ServerService::takes_push(const Worker& worker, uint64_t index, uint64_t round) const {
  if (round != worker.round) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a push of another step is refused",
                                              .where = name_of(index),
                                              .expected = fmt::format("step {}", worker.round),
                                              .actual = fmt::format("step {}", round)});
  }
  if (!is_synchronous() || round == round_) {
    if (worker.applied) throw invalid_request("a push is complete already", name_of(index));
    return true;
  }
  return false;  // kStaged: its last push waits for the others'
}

void ServerService::wait_for_update(Worker& worker, Waiting waiting) {
  if (worker.waiting == kMostWaitingCalls) {
    throw invalid_request("too many calls of a worker wait", "", fmt::format("at most {}", kMostWaitingCalls));
  }
  ++worker.waiting;
  waiting_.push_back(std::move(waiting));
}

void ServerService::push(const IncomingMessage& message, const Responder& responder) {
  wire::Data data;
  const auto request = wire::decode<wire::PushRequest>(message, data);
  std::byte* to = nullptr;
  {
    const std::lock_guard lock(mutex_);
    Worker& worker = started_worker(request.from);
    require_range(request.begin, data.bytes, true);
    if (!takes_push(worker, request.from.worker, request.round)) {
      return wait_for_update(worker,
                             {.again = [this, message, responder] { handle(ServerCall::kPush, message, responder); },
                              .responder = responder,
                              .worker = request.from.worker});
    }
    const uint64_t offset = request.begin - static_cast<uint64_t>(part_->begin());
    uint8_t& chunk = worker.arrived[offset / chunk_elements(*part_)];
    if (chunk != kMissing) throw invalid_request("elements are pushed twice", name_of(request.from.worker));
    chunk = kCopying;
    to = part_->gradients(request.from.worker) + offset * part_->width();
  }
  message.copy(data.offset, to, data.bytes);
  {
    const std::lock_guard lock(mutex_);
    ++workers_[request.from.worker].complete;
    received_bytes_ += static_cast<int64_t>(data.bytes);
    copied_bytes_ += static_cast<int64_t>(data.bytes);
  }
  responder->reply({});
}

void ServerService::apply(const IncomingMessage& message, const Responder& responder) {
  auto request = wire::decode<wire::ApplyRequest>(message);
  bool answers_at_once = false;
  {
    const std::lock_guard lock(mutex_);
    Worker& worker = started_worker(request.from);
    part_->check(request);
    if (!takes_push(worker, request.from.worker, request.round)) {
      return wait_for_update(worker,
                             {.again = [this, message, responder] { handle(ServerCall::kApply, message, responder); },
                              .responder = responder,
                              .worker = request.from.worker});
    }
    if (worker.complete != worker.arrived.size()) {
      throw invalid_request("a push is not complete", name_of(request.from.worker),
                            fmt::format("{} chunks", worker.arrived.size()), std::to_string(worker.complete));
    }
    if (const auto left = worker_that_left(); left && is_synchronous()) throw Error(*left);
    worker.applied = true;
    ++worker.round;
    note_step(request.from.worker);
    ++pushes_[request.from.worker];
    if (!is_synchronous()) queue_.push_back(request.from.worker);
    worker.settings = std::move(request);
    // kStaged: the values of the update before are there.
    answers_at_once = options_.cluster.mode == ServerMode::kStaged;
    if (!answers_at_once) worker.apply = responder;
    changed_.notify_all();
  }
  if (!answers_at_once) return;
  std::unique_lock lock(mutex_);
  OutgoingMessage reply = progress(false);
  lock.unlock();
  responder->reply(std::move(reply));
}

std::optional<Error> ServerService::worker_that_left() const {
  for (size_t w = 0; w < workers_.size(); ++w) {
    if (!workers_[w].left || workers_[w].applied) continue;
    return Error(ErrorCode::kPeerFailed, {.problem = fmt::format("{} has left, and others still train", name_of(w)),
                                          .where = fmt::format("step {}", round_),
                                          .remedy = "let all workers train the same number of steps"});
  }
  return std::nullopt;
}

void ServerService::read(const IncomingMessage& message, const Responder& responder) {
  const auto request = wire::decode<wire::ReadRequest>(message);
  // Values that the next update may change while they are sent are copied; those of kSynchronous change once their
  // reader has pushed again.
  const bool copies = options_.cluster.mode != ServerMode::kSynchronous;
  std::unique_lock values(values_mutex_, std::defer_lock);
  if (copies) values.lock();
  std::shared_ptr<const void> keep;
  const std::byte* from = nullptr;
  size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    Worker& worker = started_worker(request.from);
    if (request.count > wire::kChunkBytes) throw invalid_request("a read is too long", name_of(request.from.worker));
    bytes = request.count * part_->width();
    require_range(request.begin, bytes, false);
    uint64_t target = request.target;
    if (target == wire::kStagedValues) {
      // Step n reads the values behind n - 1 updates.
      if (request.round != round_ && request.round != round_ + 1) throw other_step(request.from.worker, request.round);
      if (request.round == round_ + 1) target = wire::kValues;
    } else if (request.round > round_) {
      if (request.round > round_ + 1) throw other_step(request.from.worker, request.round);
      return wait_for_update(worker, {.again = [=, this] { handle(ServerCall::kRead, message, responder); },
                                      .responder = responder,
                                      .worker = request.from.worker});
    }
    from = part_->elements(target, request.begin);
    if (from == nullptr) throw invalid_request("there is no such slot", fmt::format("target {}", request.target));
    keep = part_;
    if (copies) copied_bytes_ += static_cast<int64_t>(bytes);
  }
  if (copies) {
    const auto copy = std::make_shared<std::vector<std::byte>>(from, from + bytes);
    from = copy->data();
    keep = copy;
    values.unlock();
  }
  responder->reply({.head = wire::encode_read_reply(bytes), .data = from, .bytes = bytes, .keep = std::move(keep)});
}

void ServerService::hold(const wire::HoldRequest& request, const Responder& responder) {
  OutgoingMessage reply;
  {
    const std::lock_guard lock(mutex_);
    Worker& worker = started_worker(request.from);
    if (request.held && (updating_since_ || request.round > round_)) {
      if (request.round > round_ + 1) throw other_step(request.from.worker, request.round);
      return wait_for_update(worker, {.again = [=, this] { hold_again(request, responder); },
                                      .responder = responder,
                                      .worker = request.from.worker});
    }
    worker.holds = request.held;
    reply = progress(request.held);
    changed_.notify_all();
  }
  responder->reply(std::move(reply));
}

void ServerService::hold_again(const wire::HoldRequest& request, const Responder& responder) {
  try {
    hold(request, responder);
  } catch (const Error& error) {
    responder->refuse(error);
  }
}

bool ServerService::can_update() const {
  if (std::any_of(workers_.begin(), workers_.end(), [](const Worker& each) { return each.holds; })) return false;
  if (!is_synchronous()) return !queue_.empty();
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& each) { return each.applied; });
}

void ServerService::run_updates() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stops_ || (!failure_ && can_update()); });
    if (stops_) return;
    update_once(lock);
  }
}

wire::ApplyRequest ServerService::agreed_settings(const std::vector<size_t>& workers) const {
  wire::ApplyRequest agreed = workers_[workers.front()].settings;
  for (const size_t index : workers) {
    require_same_update(workers.front(), index);
    agreed.found_inf = agreed.found_inf || workers_[index].settings.found_inf;
  }
  return agreed;
}

void ServerService::require_same_update(size_t first, size_t other) const {
  const wire::ApplyRequest &expected = workers_[first].settings, &actual = workers_[other].settings;
  const auto refuse = [&](const std::string& wanted, std::string given) {
    throw Error(ErrorCode::kPeerFailed, {.problem = "workers do not make the same update",
                                         .where = name_of(other),
                                         .expected = wanted + " as " + name_of(first),
                                         .actual = std::move(given),
                                         .remedy = "pass the same flags to all workers"});
  };
  const auto what = [](const wire::ApplyRequest& each) {
    return std::tuple(each.optimizer, each.learning_rate, each.inverse_loss_scale, each.step);
  };
  const auto described = [](const wire::ApplyRequest& each) {
    return fmt::format("optimizer {}, learning rate {}, loss scale {}, global step {}", each.optimizer,
                       each.learning_rate, 1 / each.inverse_loss_scale, each.step);
  };
  if (what(actual) != what(expected)) refuse(described(expected), described(actual));
  const std::vector<std::string> names = part_->hyperparameter_names(expected.optimizer);
  for (size_t i = 0; i < names.size(); ++i) {
    if (actual.hyperparameters[i] == expected.hyperparameters[i]) continue;
    refuse(fmt::format("{} {}", names[i], expected.hyperparameters[i]),
           fmt::format("{} {}", names[i], actual.hyperparameters[i]));
  }
  const auto [one, two] =
      std::mismatch(expected.frozen.begin(), expected.frozen.end(), actual.frozen.begin(), actual.frozen.end());
  const bool freezes = one != expected.frozen.end(), also_freezes = two != actual.frozen.end();
  if (!freezes && !also_freezes) return;
  const bool is_expected = freezes && (!also_freezes || *one < *two);  // the frozen one of the two
  const std::string& tensor = part_->tensor_name(is_expected ? *one : *two);
  refuse(fmt::format("{} {}", tensor, is_expected ? "frozen" : "trained"),
         fmt::format("{} {}", tensor, is_expected ? "trained" : "frozen"));
}

void ServerService::update_once(std::unique_lock<std::mutex>& lock) {
  std::vector<size_t> workers;
  if (is_synchronous()) {
    for (size_t w = 0; w < workers_.size(); ++w) workers.push_back(w);
  } else {
    workers.push_back(queue_.front());
    queue_.pop_front();
  }
  Answers answers;
  bool found_inf = false;
  updating_since_ = Clock::now();
  try {
    const wire::ApplyRequest settings = agreed_settings(workers);
    found_inf = settings.found_inf;
    // kAsynchronous: hyperparameters are the chief's, and before its first push those of whoever comes earlier. The
    // server's own flags need not have them, and do not say what is frozen.
    chief_pushed_ = chief_pushed_ || workers.front() == 0;
    const bool follows = !chief_pushed_ || workers.front() == 0;
    lock.unlock();
    const std::lock_guard values(values_mutex_);
    part_->update(workers, settings, settings.found_inf, follows ? &settings : nullptr);
    lock.lock();
    ++round_;
    ++updates_;
  } catch (const std::exception& error) {
    if (!lock.owns_lock()) lock.lock();
    const auto* const own = dynamic_cast<const Error*>(&error);
    fail_locked(own != nullptr ? *own : Error(ErrorCode::kInternal, error.what()), answers);
  }
  updating_since_.reset();
  for (const size_t index : workers) {
    Worker& worker = workers_[index];
    worker.applied = false;
    worker.complete = 0;
    std::fill(worker.arrived.begin(), worker.arrived.end(), kMissing);
    if (Responder apply = std::exchange(worker.apply, nullptr)) {
      answers.push_back([apply = std::move(apply), reply = progress(false, found_inf)] { apply->reply(reply); });
    }
  }
  for (Waiting& each : waiting_) {
    --workers_[each.worker].waiting;
    answers.push_back(std::move(each.again));
  }
  waiting_.clear();
  lock.unlock();
  for (const auto& answer : answers) answer();
  lock.lock();
}

}  // namespace trainyard::parallel
