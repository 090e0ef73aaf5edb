#include "trainyard/parallel/collectives/threads/thread_transport.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

using Line = std::tuple<int, int, int>;  // sender, receiver, tag

struct SentMessage {
  const void* data;
  size_t bytes;
  bool copied = false;
};

}  // namespace

struct ThreadMessages::State {
  mutable std::mutex mutex;
  std::condition_variable changed;
  uint64_t changes = 0;
  std::optional<Error> failure;
  std::map<Line, std::deque<std::shared_ptr<SentMessage>>> sent;  // and not received
  // Receives of a line take its messages in the order in which they were begun.
  std::map<Line, std::pair<uint64_t, uint64_t>> receives;  // begun, done

  void note_change() {
    ++changes;
    changed.notify_all();
  }
};

namespace {

class ThreadSend final : public Transfer {
 public:
  ThreadSend(const ThreadMessages::State& state, std::shared_ptr<SentMessage> message)
      : state_(state), message_(std::move(message)) {}
  bool done() override {
    const std::lock_guard lock(state_.mutex);
    return message_->copied;
  }

 private:
  const ThreadMessages::State& state_;
  const std::shared_ptr<SentMessage> message_;
};

class ThreadReceive final : public Transfer {
 public:
  ThreadReceive(ThreadMessages::State& state, Line line, void* data, size_t bytes)
      : state_(state), line_(line), data_(data), bytes_(bytes) {
    const std::lock_guard lock(state_.mutex);
    turn_ = state_.receives[line_].first++;
  }

  bool done() override {
    std::shared_ptr<SentMessage> message;
    {
      const std::lock_guard lock(state_.mutex);
      auto& messages = state_.sent[line_];
      if (state_.receives[line_].second != turn_ || messages.empty()) return false;
      message = messages.front();
    }
    if (message->bytes > bytes_) throw Error(ErrorCode::kInternal, "a message is longer than its receiver expects");
    // Without the lock: the sender leaves its memory as it is until the message is copied.
    if (message->bytes > 0) std::memcpy(data_, message->data, message->bytes);
    const std::lock_guard lock(state_.mutex);
    state_.sent[line_].pop_front();
    ++state_.receives[line_].second;
    message->copied = true;
    state_.note_change();
    return true;
  }

 private:
  ThreadMessages::State& state_;
  const Line line_;
  void* const data_;
  const size_t bytes_;
  uint64_t turn_ = 0;
};

class ThreadTransport final : public MessageTransport {
 public:
  ThreadTransport(ThreadMessages::State& state, int thread, int threads) : state_(state) {
    process_ = thread;
    processes_ = threads;
  }

  std::unique_ptr<Transfer> send(int to, int tag, const void* data, size_t bytes) override {
    auto message = std::make_shared<SentMessage>(SentMessage{data, bytes});
    const std::lock_guard lock(state_.mutex);
    state_.sent[{process_, to, tag}].push_back(message);
    state_.note_change();
    return std::make_unique<ThreadSend>(state_, std::move(message));
  }
  std::unique_ptr<Transfer> receive(int from, int tag, void* data, size_t bytes) override {
    return std::make_unique<ThreadReceive>(state_, Line{from, process_, tag}, data, bytes);
  }
  void finish() override {}

 private:
  ThreadMessages::State& state_;
};

}  // namespace

ThreadMessages::ThreadMessages(int size) : size_(size), state_(std::make_unique<State>()) {}
ThreadMessages::~ThreadMessages() = default;

std::unique_ptr<MessageTransport> ThreadMessages::transport(int thread) {
  return std::make_unique<ThreadTransport>(*state_, thread, size_);
}

uint64_t ThreadMessages::changes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->changes;
}

bool ThreadMessages::wait_for_change(uint64_t seen, std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, until, [&] { return state_->changes != seen; });
}

void ThreadMessages::fail(const Error& error) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->failure) state_->failure = error;
  state_->note_change();
}

std::optional<Error> ThreadMessages::failure() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure;
}

}  // namespace trainyard::parallel
