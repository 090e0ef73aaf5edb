#include "trainyard/parallel/collectives/process_engine.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sys/prctl.h>

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

constexpr auto kAskPeers = milliseconds(50);
// How long a process that loses a connection waits for what the others say of it: before its report, and behind it.
constexpr auto kForFirstCause = milliseconds(2000);

// How long the thread rests after this many turns in which nothing moved. A neighbour that computes alike is there
// within microseconds; one that does not may take seconds.
void rest(int idle_turns) {
  constexpr int kSpin = 20, kYield = 100, kShort = 1000;
  if (idle_turns < kSpin) return;
  if (idle_turns < kYield) return std::this_thread::yield();
  std::this_thread::sleep_for(idle_turns < kShort ? microseconds(10) : microseconds(200));
}

// Returns what another process has reported, or why it cannot be asked: a group that cannot be asked has failed.
std::optional<Error> asked(const std::function<std::optional<Error>()>& reported) {
  try {
    return reported();
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, {.problem = "the other processes cannot be asked", .actual = error.what()});
  }
}

// Reports an error to the other processes, if there is a way.
void tell(const std::function<void(const Error&)>& report, const Error& error) {
  if (!report) return;
  try {
    report(error);
  } catch (const std::exception&) {
    // Whom it would be told to has gone.
  }
}

// What messages are still to come for, and what carries them, when a process ends after a failure: another process may
// write there as long as this one lives.
struct LeftBehind {
  std::unique_ptr<MessageTransport> transport;
  std::vector<std::shared_ptr<ProcessEngine::Job>> jobs;
};

void leave_behind(LeftBehind left) {
  static auto* const all = new std::vector<LeftBehind>();
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  all->push_back(std::move(left));
}

}  // namespace

std::shared_ptr<ProcessEngine> ProcessEngine::start(std::function<std::unique_ptr<MessageTransport>()> open,
                                                    milliseconds deadline, PeerWatch peers) {
  std::shared_ptr<ProcessEngine> engine(new ProcessEngine(), [](ProcessEngine* ended) {
    if (ended->end()) delete ended;
  });
  engine->peers_ = std::move(peers);
  engine->thread_.emplace(core::ThreadOptions{.name = "exchange"},
                          [own = engine.get(), open = std::move(open)] { own->serve(open); });
  if (engine->wait_until(Clock::now() + deadline, [&] { return engine->opened_; })) return engine;
  throw Error(ErrorCode::kTimeout, {.problem = fmt::format("the other processes did not start within {:.3g} s",
                                                           std::chrono::duration<double>(deadline).count()),
                                    .remedy = "look whether all of them run, and what they said last"});
}

bool ProcessEngine::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    if (waits_outside_) return false;
  }
  news_ = true;
  changed_.notify_all();
  return true;
}

std::function<std::optional<int64_t>()> ProcessEngine::turns() const {
  return [pulse = pulse_] { return pulse->under_way > 0 ? std::optional<int64_t>(pulse->turns) : std::nullopt; };
}

void ProcessEngine::watch(PeerWatch peers) {
  const std::lock_guard lock(mutex_);
  peers_ = std::move(peers);
}

std::shared_ptr<ProcessEngine::Job> ProcessEngine::submit(std::shared_ptr<CollectiveOperation> operation) {
  throw_if_failed();
  // Before the thread could say that it has ended.
  begin_meeting(operation->name().data());
  auto job = std::make_shared<Job>(Job{.operation = std::move(operation)});
  {
    const std::lock_guard lock(mutex_);
    submitted_.push_back(job);
    ++pulse_->under_way;
  }
  news_ = true;
  changed_.notify_all();
  return job;
}

void ProcessEngine::begin_meeting(const char* operation) {
  std::function<void(const char*)> begin;
  {
    const std::lock_guard lock(mutex_);
    begin = peers_.begin;
  }
  if (begin) begin(operation);
}

void ProcessEngine::end_meeting() {
  std::function<void()> end;
  {
    const std::lock_guard lock(mutex_);
    end = peers_.end;
  }
  if (end) end();
}

void ProcessEngine::check() {
  pulse_->turns.fetch_add(1, std::memory_order_relaxed);
  ask_peers();
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(*failure_);
}

bool ProcessEngine::wait_until(Clock::time_point time, const std::function<bool()>& over) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (over()) return true;
    if (failure_) throw Error(*failure_);
    const auto now = Clock::now();
    if (now >= time) return false;
    changed_.wait_until(lock, std::min(time, now + kAskPeers));
    if (over()) return true;
    lock.unlock();
    ask_peers();
    lock.lock();
  }
}

void ProcessEngine::ask_peers() {
  std::function<std::optional<Error>()> reported;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (!peers_.reported || now - asked_ < kAskPeers) return;
    asked_ = now;
    reported = peers_.reported;
  }
  if (const auto error = asked(reported)) note_failure(*error);
}

void ProcessEngine::note_failure(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = error;
  }
  news_ = true;
  changed_.notify_all();
}

void ProcessEngine::fail(const Error& error) {
  std::function<void(const Error&)> report;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    report = peers_.report;
  }
  note_failure(error);
  tell(report, error);
}

void ProcessEngine::fail_by_transport(const Error& error) {
  if (error.code() != ErrorCode::kPeerFailed || await_report()) return fail(error);
  std::function<void(const Error&)> report;
  {
    const std::lock_guard lock(mutex_);
    report = peers_.report;
  }
  tell(report, error);
  await_report();
  note_failure(error);
}

bool ProcessEngine::await_report() {
  constexpr auto kTurn = milliseconds(10);
  const auto end = Clock::now() + kForFirstCause;
  for (;;) {
    std::function<std::optional<Error>()> reported;
    {
      const std::lock_guard lock(mutex_);
      if (failure_ || ending_) return true;
      reported = peers_.reported;
    }
    if (!reported) return false;
    const std::optional<Error> error = asked(reported);
    if (error) note_failure(*error);
    if (error || Clock::now() >= end) return error.has_value();
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kTurn, [this] { return failure_ || ending_; });
  }
}

void ProcessEngine::throw_if_failed() {
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(ErrorCode::kPeerFailed, failure_->detail());
}

void ProcessEngine::run_on_transport(const std::function<void(MessageTransport&)>& work, milliseconds deadline) {
  throw_if_failed();
  const auto task = std::make_shared<Task>(Task{.work = work});
  {
    const std::lock_guard lock(mutex_);
    task_ = task;
  }
  news_ = true;
  changed_.notify_all();
  if (!wait_until(Clock::now() + deadline, [&] { return task->finished; })) {
    const Error error(ErrorCode::kTimeout,
                      {.problem = fmt::format("process {} waited {:.3g} s for the transport", process_,
                                              std::chrono::duration<double>(deadline).count()),
                       .remedy = "look for what stopped the other processes"});
    fail(error);
    throw error;
  }
  if (task->error) std::rethrow_exception(task->error);
}

void ProcessEngine::run_task() {
  std::shared_ptr<Task> task;
  {
    const std::lock_guard lock(mutex_);
    task = std::exchange(task_, nullptr);
    if (task == nullptr) return;
    waits_outside_ = true;
  }
  try {
    task->work(*transport_);
  } catch (...) {
    task->error = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    waits_outside_ = false;
    task->finished = true;
  }
  changed_.notify_all();
}

Traffic ProcessEngine::sent() const {
  const std::lock_guard lock(mutex_);
  return sent_;
}

void ProcessEngine::finish(milliseconds deadline) {
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
  }
  news_ = true;
  changed_.notify_all();
  if (wait_until(Clock::now() + deadline, [this] { return finished_; })) return;
  const Error error(ErrorCode::kTimeout,
                    {.problem = fmt::format("process {} waited {:.3g} s for the others to end", process_,
                                            std::chrono::duration<double>(deadline).count()),
                     .remedy = "look for what stopped them"});
  fail(error);
  throw error;
}

void ProcessEngine::serve(const std::function<std::unique_ptr<MessageTransport>()>& open) {
  // The system adds this much to each rest, to wake several threads at once.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  try {
    transport_ = open();
    {
      const std::lock_guard lock(mutex_);
      process_ = transport_->process();
      processes_ = transport_->processes();
      opened_ = true;
      waits_outside_ = false;
    }
    changed_.notify_all();
    exchange();
  } catch (const Error& error) {
    leave_outside();
    fail_by_transport(error);
  } catch (const std::exception& error) {
    leave_outside();
    fail({ErrorCode::kInternal, {.problem = "the exchange between processes has failed", .actual = error.what()}});
  }
  if (!stuck_.empty()) leave_behind({std::move(transport_), std::move(stuck_)});
}

void ProcessEngine::leave_outside() {
  const std::lock_guard lock(mutex_);
  waits_outside_ = false;
}

bool ProcessEngine::take_work(std::vector<std::shared_ptr<Job>>& jobs) {
  std::unique_lock lock(mutex_);
  const auto has_news = [this] { return !submitted_.empty() || task_ != nullptr || ending_ || finishing_ || failure_; };
  if (jobs.empty()) changed_.wait(lock, has_news);
  news_ = false;
  jobs.insert(jobs.end(), submitted_.begin(), submitted_.end());
  submitted_.clear();
  return !ending_ && !failure_ && !(finishing_ && jobs.empty());
}

void ProcessEngine::exchange() {
  std::vector<std::shared_ptr<Job>> jobs;
  // Whatever ends the loop: what is on its way keeps its memory.
  struct Keep {
    std::vector<std::shared_ptr<Job>>&from, &to;
    ~Keep() { to.insert(to.end(), from.begin(), from.end()); }
  } const keep{jobs, stuck_};
  int idle_turns = 0;
  for (;;) {
    if ((jobs.empty() || news_) && !take_work(jobs)) break;
    if (jobs.empty()) run_task();
    bool moved = false, any_done = false;
    pulse_->turns.fetch_add(1, std::memory_order_relaxed);
    for (const auto& job : jobs) {
      moved |= job->operation->advance(*transport_);
      any_done |= job->operation->done();
    }
    idle_turns = moved ? 0 : idle_turns + 1;
    if (!any_done) {
      rest(idle_turns);
      continue;
    }
    std::function<void()> hear_end;
    size_t ended = 0;
    {
      const std::lock_guard lock(mutex_);
      ended = std::erase_if(jobs, [this](const auto& job) {
        if (!job->operation->done()) return false;
        job->finished = true;
        const Traffic sent = job->operation->sent();
        sent_.messages += sent.messages;
        sent_.bytes += sent.bytes;
        if (!job->operation->quiet()) stuck_.push_back(job);
        return true;
      });
      hear_end = peers_.end;
    }
    pulse_->under_way -= static_cast<int64_t>(ended);
    changed_.notify_all();
    for (size_t i = 0; hear_end && i < ended; ++i) hear_end();
  }
  {
    const std::lock_guard lock(mutex_);
    if (ending_ || failure_) return;
    waits_outside_ = true;
  }
  // A process that still has messages on their way has failed, and ends without the others.
  if (stuck_.empty()) transport_->finish();
  {
    const std::lock_guard lock(mutex_);
    waits_outside_ = false;
    finished_ = true;
  }
  changed_.notify_all();
}

}  // namespace trainyard::parallel
