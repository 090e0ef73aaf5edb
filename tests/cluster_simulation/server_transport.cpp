// Carries the calls between workers and parameter servers over simulated connections, in the place of gRPC, whose
// threads wait in system calls of their own (parallel/servers/transport.h). As over gRPC, calls of one connection are
// handled by several threads, so that one may overtake another; data is read where it is until the call has left; and a
// connection that closes ends all its calls on both sides.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/cluster_simulation/world.h"
#include <poll.h>

#include "trainyard/core/sockets/frame.h"
#include "trainyard/core/sockets/socket.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/process_group/group_message.h"
#include "trainyard/parallel/process_group/wake_event.h"
#include "trainyard/parallel/servers/transport.h"

namespace trainyard::parallel {
namespace {

using cluster_simulation::World;
using core::BodyReader, core::BodyWriter, core::Error, core::ErrorCode, core::Frame;

constexpr size_t kLongestBody = kLongestServerMessage + 4096;
constexpr auto kTimeToConnect = std::chrono::milliseconds(500);
constexpr auto kTimeToEnd = std::chrono::seconds(2);
constexpr int kHandlingThreads = 3;

// kGoodbye: no more will be sent. The other end closes the connection, so that nothing that was sent is lost.
enum Kind : uint8_t { kCall = 1, kReply, kRefusal, kEnded, kGoodbye };

struct Message {
  Kind kind{};
  int64_t call = 0;
  int64_t name = 0;  // of kCall
  OutgoingMessage content{};
};

std::string encoded(const Message& message) {
  BodyWriter body;
  body.number(message.call).number(message.name);
  std::string bytes = message.content.head;
  bytes.append(static_cast<const char*>(message.content.data), message.content.bytes);
  return body.text(bytes).take();
}

// Returns the bytes in pieces, as they may be received.
IncomingMessage in_pieces(std::string text) {
  const auto keep = std::make_shared<const std::string>(std::move(text));
  const auto bytes = std::as_bytes(std::span(*keep));
  const auto middle = static_cast<size_t>(World::entered()->draws().below(bytes.size() + 1));
  return {{bytes.first(middle), bytes.subspan(middle)}, keep};
}

struct Arrived {
  Kind kind{};
  int64_t call = 0, name = 0;
  std::string bytes{};
};

Arrived decoded(const Frame& frame) {
  BodyReader body(frame.body);
  Arrived arrived{.kind = static_cast<Kind>(frame.kind)};
  arrived.call = body.number();
  arrived.name = body.number();
  arrived.bytes = body.text();
  body.end();
  return arrived;
}

// A connection's end with a thread that sends and receives.
class Line {
 public:
  // `receive` is called for each message, `closed` once when the connection has closed, on the line's thread.
  Line(core::Socket socket, std::function<void(Arrived)> receive, std::function<void()> closed)
      : connection_(std::move(socket), kLongestBody),
        receive_(std::move(receive)),
        closed_(std::move(closed)),
        thread_({.name = "line"}, [this] { run(); }) {}
  // Closes it.
  ~Line() {
    ends_ = true;
    wake_.wake();
    thread_.join();
  }

  void send(Message message) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(message));
    }
    wake_.wake();
  }
  // Waits until the other end has closed the connection.
  void await_close() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kTimeToEnd, [this] { return is_closed_; });
  }

 private:
  void run() {
    while (!ends_ && turn()) {
    }
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
    }
    changed_.notify_all();
    closed_();
  }

  // Returns false when the connection has closed.
  bool turn() {
    {
      const std::lock_guard lock(mutex_);
      while (!waiting_.empty() && !connection_.has_unsent()) {
        const Message message = std::move(waiting_.front());
        waiting_.pop_front();
        connection_.send(message.kind, encoded(message));
      }
    }
    pollfd polled[] = {
        {.fd = connection_.descriptor(),
         .events = static_cast<short>(POLLIN | (connection_.has_unsent() ? POLLOUT : 0)),
         .revents = 0},
        {.fd = wake_.descriptor(), .events = POLLIN, .revents = 0},
    };
    ::poll(polled, std::size(polled), -1);
    if (polled[1].revents != 0) wake_.reset();
    if (connection_.has_unsent() && !connection_.flush()) return false;
    if (polled[0].revents == 0) return true;
    std::vector<Frame> frames;
    const bool open = connection_.receive(frames);
    for (const Frame& frame : frames) receive_(decoded(frame));
    return open;
  }

  core::FrameConnection connection_;
  const std::function<void(Arrived)> receive_;
  const std::function<void()> closed_;
  WakeEvent wake_;
  std::atomic<bool> ends_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> waiting_;  // guarded
  bool is_closed_ = false;       // guarded
  core::Thread thread_;
};

// What a server knows of one connection. Responders keep it.
struct Caller {
  std::mutex mutex;
  Line* line = nullptr;                                     // guarded; null: it has closed
  std::map<int64_t, std::weak_ptr<class Responder>> calls;  // guarded: not answered
};

class Responder : public ServerResponder {
 public:
  Responder(std::shared_ptr<Caller> caller, int64_t call) : caller_(std::move(caller)), call_(call) {}
  ~Responder() override { answer({.kind = kEnded}); }

  void reply(OutgoingMessage message) override { answer({.kind = kReply, .content = std::move(message)}); }
  void refuse(const Error& error) override { answer({.kind = kRefusal, .content = {.head = encode(error)}}); }
  void on_cancelled(std::function<void()> function) override { end_.on_end(std::move(function)); }
  void cancel() { end_.end(); }

 private:
  void answer(Message message) {
    const std::lock_guard lock(caller_->mutex);
    if (std::exchange(answered_, true)) return;
    caller_->calls.erase(call_);
    message.call = call_;
    if (caller_->line != nullptr) caller_->line->send(std::move(message));
  }

  const std::shared_ptr<Caller> caller_;
  const int64_t call_;
  bool answered_ = false;  // guarded by the caller's
  CallEnd end_;
};

class Listener : public ServerListener {
 public:
  Listener(const std::string& host, uint16_t port, ServerHandler handler)
      : handler_(std::move(handler)), socket_(core::listen_at(host, port)) {
    for (int i = 0; i < kHandlingThreads; ++i) {
      threads_.emplace_back(core::ThreadOptions{.name = "handler"}, [this] { handle_calls(); });
    }
    accepting_ = std::make_unique<core::Thread>(core::ThreadOptions{.name = "listener"}, [this] { accept(); });
  }
  ~Listener() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    wake_.wake();
    accepting_.reset();
    socket_ = core::Socket();  // who comes now is refused
    threads_.clear();
    end_calls();
    for (const auto& line : lines_) line->send({.kind = kGoodbye});
    for (const auto& line : lines_) line->await_close();
    lines_.clear();
  }
  uint16_t port() const override { return core::port_of(socket_); }

 private:
  void accept() {
    while (true) {
      pollfd polled[] = {{.fd = socket_.descriptor(), .events = POLLIN, .revents = 0},
                         {.fd = wake_.descriptor(), .events = POLLIN, .revents = 0}};
      ::poll(polled, std::size(polled), -1);
      {
        const std::lock_guard lock(mutex_);
        if (ends_) return;
      }
      if (polled[1].revents != 0) wake_.reset();
      while (std::optional<core::Socket> socket = core::accept_from(socket_)) add(std::move(*socket));
    }
  }

  void add(core::Socket socket) {
    const auto caller = std::make_shared<Caller>();
    const std::lock_guard lock(caller->mutex);
    lines_.push_back(std::make_unique<Line>(
        std::move(socket), [this, caller](Arrived message) { take(caller, std::move(message)); },
        [caller] { close(*caller); }));
    caller->line = lines_.back().get();
  }

  void take(const std::shared_ptr<Caller>& caller, Arrived message) {
    auto responder = std::make_shared<Responder>(caller, message.call);
    {
      const std::lock_guard lock(caller->mutex);
      caller->calls[message.call] = responder;
    }
    const std::lock_guard lock(mutex_);
    if (ends_) return;
    calls_.emplace_back([this, responder = std::move(responder), message = std::move(message)]() mutable {
      handler_(static_cast<ServerCall>(message.name), in_pieces(std::move(message.bytes)), std::move(responder));
    });
    changed_.notify_one();
  }

  static void close(Caller& caller) {
    std::map<int64_t, std::weak_ptr<Responder>> calls;
    {
      const std::lock_guard lock(caller.mutex);
      caller.line = nullptr;
      calls = caller.calls;
    }
    for (const auto& [call, known] : calls) {
      if (const auto responder = known.lock()) responder->cancel();
    }
  }

  // Those that come from now on end with their responders.
  void end_calls() {
    std::deque<std::function<void()>> calls;
    const std::lock_guard lock(mutex_);
    calls.swap(calls_);
  }

  void handle_calls() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ends_ || !calls_.empty(); });
      if (ends_) return;
      auto call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      call();
      call = nullptr;
      lock.lock();
    }
  }

  const ServerHandler handler_;
  core::Socket socket_;
  WakeEvent wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;                         // guarded
  std::deque<std::function<void()>> calls_;   // guarded
  std::vector<std::unique_ptr<Line>> lines_;  // of the accepting thread, then of the destructor
  std::vector<core::Thread> threads_;
  std::unique_ptr<core::Thread> accepting_;
};

class Channel : public ServerChannel {
 public:
  Channel(std::string host, uint16_t port)
      : host_(std::move(host)), port_(port), thread_({.name = "server calls"}, [this] { run(); }) {}
  ~Channel() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void call(ServerCall call, OutgoingMessage message, std::function<void(CallOutcome)> done) override {
    const std::lock_guard lock(mutex_);
    const int64_t number = next_++;
    calls_[number] = std::move(done);
    Message started{.kind = kCall, .call = number, .name = static_cast<int64_t>(call), .content = std::move(message)};
    line_ ? line_->send(std::move(started)) : waiting_.push_back(std::move(started));
    changed_.notify_all();
  }

  void cancel() override {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    changed_.notify_all();
  }

 private:
  // Connects, and ends calls that the network or cancel() has ended.
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] {
        return ends_ || closed_ || (cancelled_ && !calls_.empty()) || (!line_ && !waiting_.empty());
      });
      if (ends_) break;
      if (cancelled_ || std::exchange(closed_, false)) {
        end_calls(lock, cancelled_ ? CallOutcome::Kind::kCancelled : CallOutcome::Kind::kUnreachable,
                  "the connection has closed");
        continue;
      }
      lock.unlock();
      std::optional<core::Socket> socket = core::connect_once(host_, port_, kTimeToConnect);
      lock.lock();
      if (cancelled_) continue;
      if (!socket) {
        end_calls(lock, CallOutcome::Kind::kUnreachable, "no server listens");
        continue;
      }
      line_ = std::make_unique<Line>(
          std::move(*socket), [this](Arrived message) { take(std::move(message)); }, [this] { close(); });
      for (Message& message : waiting_) line_->send(std::move(message));
      waiting_.clear();
    }
    const std::unique_ptr<Line> line = std::move(line_);
    lock.unlock();
  }

  void end_calls(std::unique_lock<std::mutex>& lock, CallOutcome::Kind kind, const char* why) {
    std::map<int64_t, std::function<void(CallOutcome)>> ended = std::exchange(calls_, {});
    waiting_.clear();
    std::unique_ptr<Line> line = std::move(line_);
    lock.unlock();
    line.reset();
    for (auto& [number, done] : ended) done({.kind = kind, .error = Error(ErrorCode::kPeerFailed, why)});
    lock.lock();
    closed_ = false;
  }

  // On the line's thread.
  void take(Arrived message) {
    if (message.kind == kGoodbye) return close();
    std::function<void(CallOutcome)> done;
    {
      const std::lock_guard lock(mutex_);
      const auto found = calls_.find(message.call);
      if (found == calls_.end()) return;
      done = std::move(found->second);
      calls_.erase(found);
    }
    switch (message.kind) {
      case kReply:
        return done({.message = in_pieces(std::move(message.bytes))});
      case kRefusal:
        return done({.kind = CallOutcome::Kind::kRefused, .error = decode_error(message.bytes)});
      default:
        return done(
            {.kind = CallOutcome::Kind::kUnreachable, .error = Error(ErrorCode::kPeerFailed, "the server has ended")});
    }
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  const std::string host_;
  const uint16_t port_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false, cancelled_ = false, closed_ = false;     // guarded
  int64_t next_ = 0;                                           // guarded
  std::map<int64_t, std::function<void(CallOutcome)>> calls_;  // guarded: not answered
  std::deque<Message> waiting_;                                // guarded: for a connection
  std::unique_ptr<Line> line_;                                 // guarded
  core::Thread thread_;
};

std::pair<std::string, uint16_t> host_and_port(const std::string& address) {
  const size_t colon = address.rfind(':');
  return {address.substr(0, colon), static_cast<uint16_t>(std::stoi(address.substr(colon + 1)))};
}

}  // namespace

std::unique_ptr<ServerListener> listen_for_workers(const std::string& address, const TlsFiles& /*tls*/,
                                                   ServerHandler handler) {
  const auto [host, port] = host_and_port(address);
  return std::make_unique<Listener>(host, port, std::move(handler));
}

std::unique_ptr<ServerChannel> connect_to_server(const std::string& address, const TlsFiles& /*tls*/) {
  const auto [host, port] = host_and_port(address);
  return std::make_unique<Channel>(host, port);
}

}  // namespace trainyard::parallel
