#include "trainyard/parallel/collectives/nccl/nccl_watch.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;
using Clock = std::chrono::steady_clock;

namespace {

constexpr auto kLook = std::chrono::milliseconds(20);
constexpr auto kAskPeersEvery = std::chrono::seconds(1);
// How long ranks may take to end together when the training is over: others may still be writing their last files.
constexpr auto kFinish = std::chrono::seconds(30);

}  // namespace

void NcclMember::drop_reached() {
  while (!pending.empty() && pending.front().mark->reached()) pending.pop_front();
}

NcclWatch::NcclWatch(PeerFailure peer_failure)
    : peer_failure_(std::move(peer_failure)), thread_({.name = "nccl watch"}, [this] { serve(); }) {}

NcclWatch::~NcclWatch() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (!failed_) finish_all();
}

void NcclWatch::add(const std::shared_ptr<NcclMember>& member) {
  std::lock_guard lock(mutex_);
  members_.push_back(member);
}

std::vector<std::shared_ptr<NcclMember>> NcclWatch::members() const {
  std::lock_guard lock(mutex_);
  return members_;
}

void NcclWatch::fail(const Error& error) {
  {
    std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = error;
    failed_ = true;
  }
  changed_.notify_all();
}

void NcclWatch::throw_if_failed() const {
  if (!failed_) return;
  std::lock_guard lock(mutex_);
  throw *error_;
}

Error NcclWatch::timeout(const NcclMember& late, const std::string& operation,
                         std::chrono::milliseconds deadline) const {
  std::vector<int> behind;
  for (const auto& other : members()) {
    if (other->calls < late.calls) behind.push_back(other->rank);
  }
  return {ErrorCode::kTimeout,
          {.problem = fmt::format("rank {} of {} waited {:.3g} s for its peers", late.rank, late.size,
                                  std::chrono::duration<double>(deadline).count()),
           .where = operation,
           .actual = behind.empty() ? "it is not done on the GPU"
                                    : fmt::format("no call from rank {}", fmt::join(behind, ", ")),
           .remedy = "look for what stopped them, or raise the deadline"}};
}

std::optional<Error> NcclWatch::trouble_of(NcclMember& member) const {
  std::optional<std::pair<std::string, std::chrono::milliseconds>> late;
  NcclAnswer answer;
  {
    std::lock_guard lock(member.mutex);
    if (member.ended) return std::nullopt;
    member.drop_reached();
    const auto now = Clock::now();
    const auto overdue = std::find_if(member.pending.begin(), member.pending.end(),
                                      [now](const auto& call) { return now - call.since > call.deadline; });
    if (overdue != member.pending.end()) late.emplace(overdue->operation, overdue->deadline);
    if (!late) answer = member.handle->state();
  }
  if (late) return timeout(member, late->first, late->second);
  if (answer.state != NcclAnswer::State::kFailed) return std::nullopt;
  return Error(ErrorCode::kPeerFailed, {.problem = "the GPUs' exchange has failed",
                                        .where = fmt::format("rank {} of {}", member.rank, member.size),
                                        .actual = answer.error,
                                        .remedy = "look for the rank that ended first; NCCL_DEBUG=WARN says more"});
}

void NcclWatch::serve() {
  auto asked = Clock::now();
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kLook, [this] { return ending_ || error_; });
      if (error_) break;
      if (ending_) return;
    }
    try {
      for (const auto& member : members()) {
        if (const auto trouble = trouble_of(*member)) fail(*trouble);
      }
      if (peer_failure_ && Clock::now() - asked > kAskPeersEvery) {
        if (const auto reported = peer_failure_()) fail(*reported);
        asked = Clock::now();
      }
    } catch (const std::exception& error) {
      fail({ErrorCode::kInternal, {.problem = "the GPUs' exchange cannot be watched", .actual = error.what()}});
    }
  }
  abort_all();
}

// Side by side: a rank's abort may wait for a recording that its thread lets go of only once all ranks have ended.
void NcclWatch::abort_all() {
  std::vector<core::Thread> threads;
  for (const auto& member : members()) {
    {
      std::lock_guard lock(member->mutex);
      if (std::exchange(member->ended, true)) continue;
    }
    threads.emplace_back(core::ThreadOptions{.name = "nccl abort"}, [member] { member->handle->abort(); });
  }
}

void NcclWatch::finish_all() {
  for (const auto& member : members_) {
    member->ended = true;
    member->handle->finish();
  }
  const auto deadline = Clock::now() + kFinish;
  for (const auto& member : members_) {
    NcclAnswer answer = member->handle->state();
    while (answer.state == NcclAnswer::State::kInProgress && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      answer = member->handle->state();
    }
    if (answer.state != NcclAnswer::State::kDone) member->handle->abort();
  }
}

}  // namespace trainyard::parallel
