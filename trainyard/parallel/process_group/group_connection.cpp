#include "trainyard/parallel/process_group/group_connection.h"

#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>

#include "trainyard/core/base/log.h"

namespace trainyard::parallel {

using core::Error, core::ErrorCode, std::chrono::milliseconds;

namespace {

using Clock = std::chrono::steady_clock;

constexpr milliseconds kBetweenBeats{10};  // also where the activity changes all the time
constexpr auto kLastWords = std::chrono::seconds(1);

// Lets `top -H` and /proc show what this rank does: the thread is "at all-reduce".
void show(const std::string& operation) {
  pthread_setname_np(pthread_self(), ("at " + operation).substr(0, 15).c_str());
}

}  // namespace

GroupConnection::GroupConnection(core::Socket socket, GroupConnectionOptions options)
    : options_(std::move(options)),
      unsent_({{GroupMessage::kHello, encode(options_.hello)}}),
      connection_(std::move(socket), kLongestGroupMessage),
      thread_({.name = "process group"}, [this] { serve(); }) {}

GroupConnection::~GroupConnection() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.wake();
  thread_.join();
}

void GroupConnection::send(GroupMessage message, std::string body) {
  {
    const std::lock_guard lock(mutex_);
    unsent_.emplace_back(message, std::move(body));
  }
  wake_.wake();
}

void GroupConnection::change_activity(const std::function<void(Activity&)>& change) {
  bool is_known = false;
  {
    const std::lock_guard lock(mutex_);
    change(activity_);
    is_known = std::exchange(activity_changed_, true);
  }
  // A thread that knows of a change looks again within kBetweenBeats. Waking it for each collective would cost more
  // than a small one takes.
  if (!is_known) wake_.wake();
}

template <typename Done>
void GroupConnection::await(Done done) {
  std::unique_lock lock(mutex_);
  awaits_ = done;
  changed_.wait(lock, [&] { return done() || failure_; });
  awaits_ = nullptr;
  if (!done()) throw *failure_;
}

void GroupConnection::await_welcome() {
  await([this] { return welcome_; });
}

SharedTexts GroupConnection::await_texts(int64_t call) {
  await([&] { return texts_.contains(call); });
  const std::lock_guard lock(mutex_);
  return std::move(texts_.extract(call).mapped());
}

void GroupConnection::await_gone() {
  std::unique_lock lock(mutex_);
  awaits_ = [this] { return gone_; };
  changed_.wait(lock, [this] { return gone_ || failure_; });
  awaits_ = nullptr;
}

bool GroupConnection::waits() const {
  const std::lock_guard lock(mutex_);
  return awaits_ && !failure_ && !awaits_();
}

std::string GroupConnection::operation() const {
  const std::lock_guard lock(mutex_);
  return activity_.operation;
}

std::optional<std::string> GroupConnection::note() const {
  const std::lock_guard lock(mutex_);
  return note_;
}

std::optional<Error> GroupConnection::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void GroupConnection::fail(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ || gone_) return;
    failure_ = error;
  }
  failed_at_ = Clock::now();
  changed_.notify_all();
}

void GroupConnection::serve() {
  auto heard = Clock::now(), beat = heard - kBetweenBeats;
  std::optional<Clock::time_point> end;
  bool open = true;
  std::string shown;
  while (true) {
    bool ending = false, changed = false;
    {
      const std::lock_guard lock(mutex_);
      for (auto& [message, body] : unsent_) connection_.send(static_cast<uint8_t>(message), body);
      unsent_.clear();
      ending = ending_;
      changed = activity_changed_;
      const auto now = Clock::now();
      look_after_exchange(now);
      if (shown != activity_.operation) show(shown = activity_.operation);
      if (open && now - beat >= (changed || ending ? kBetweenBeats : heartbeat_interval(options_.deadlines))) {
        Activity said = activity_;
        if (awaits_ && awaits_()) ++said.done;  // its thread has not noticed yet, and may be held
        connection_.send(static_cast<uint8_t>(GroupMessage::kBeat), encode(said));
        activity_changed_ = changed = false;
        beat = now;
      }
    }
    std::vector<core::Frame> frames;
    try {
      if (open) {
        // A hub that has ended takes nothing more, but what it said last may have come: receive() tells its end.
        connection_.flush();
        open = connection_.receive(frames);
      }
      if (!frames.empty()) heard = Clock::now();
      for (const core::Frame& frame : frames) take(frame);
    } catch (const Error& error) {
      fail(error.in("rank 0's hub"));
      open = false;
    }
    const auto now = Clock::now();
    if (!open) fail(rank_died(0, first_));
    const milliseconds patience = first_.step < 0 ? options_.deadlines.start : options_.deadlines.step;
    if (now - heard > patience) fail(rank_is_frozen(0, first_, patience));
    look_after_failure(now);
    if (ending) {
      if (!end) end = now + kLastWords;
      if (!open || !connection_.has_unsent() || now > *end) return;
    }
    pollfd events[] = {{.fd = wake_.descriptor(), .events = POLLIN, .revents = 0},
                       {.fd = open ? connection_.descriptor() : -1,
                        .events = static_cast<int16_t>(POLLIN | (connection_.has_unsent() ? POLLOUT : 0)),
                        .revents = 0}};
    ::poll(events, 2,
           static_cast<int>((changed || ending ? kBetweenBeats : heartbeat_interval(options_.deadlines)).count()));
    wake_.reset();
  }
}

void GroupConnection::take(const core::Frame& frame) {
  switch (static_cast<GroupMessage>(frame.kind)) {
    case GroupMessage::kBeat:
      first_ = decode_activity(frame.body);
      return;
    case GroupMessage::kFailed:
      fail(decode_error(frame.body));
      return;
    case GroupMessage::kTexts: {
      SharedTexts texts = decode_texts(frame.body);
      const std::lock_guard lock(mutex_);
      texts_.insert_or_assign(texts.call, std::move(texts));
      break;
    }
    case GroupMessage::kNote: {
      const std::lock_guard lock(mutex_);
      note_ = frame.body;
      break;
    }
    case GroupMessage::kWelcome: {
      const std::lock_guard lock(mutex_);
      welcome_ = true;
      break;
    }
    case GroupMessage::kGone: {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      break;
    }
    case GroupMessage::kHello:
    case GroupMessage::kText:
    case GroupMessage::kLeave:
      throw Error(ErrorCode::kCorruptData, fmt::format("a message of kind {} is none that rank 0 sends", frame.kind));
  }
  changed_.notify_all();
}

void GroupConnection::watch_exchange(std::function<std::optional<int64_t>()> turns) {
  const std::lock_guard lock(mutex_);
  exchange_turns_ = std::move(turns);
}

void GroupConnection::look_after_exchange(Clock::time_point now) {
  if (!exchange_turns_ || !activity_.waits() || failure_) {
    last_turn_.reset();
    return;
  }
  const std::optional<int64_t> turn = exchange_turns_();
  if (!turn || turn != last_turn_) {
    last_turn_ = turn;
    turned_ = now;
    return;
  }
  const milliseconds patience = activity_.step < 0 ? options_.deadlines.start : options_.deadlines.step;
  if (now - turned_ < patience) return;
  turned_ = now;  // said once a deadline
  connection_.send(static_cast<uint8_t>(GroupMessage::kFailed),
                   encode(exchange_is_stalled(options_.hello.rank, activity_, patience)));
}

void GroupConnection::look_after_failure(Clock::time_point now) {
  if (!failed_at_ || resorted_ || !options_.last_resort || now - *failed_at_ < options_.grace) return;
  resorted_ = true;
  options_.last_resort(*failure());
}

}  // namespace trainyard::parallel
