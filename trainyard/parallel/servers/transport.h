// What carries messages between workers and servers: calls that are answered once. gRPC is one implementation
// (grpc_listener.cpp, grpc_channel.cpp); builds without it have none (without_grpc.cpp).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/servers/server_options.h"

namespace trainyard::parallel {

// The calls of parameter_server.proto.
enum class ServerCall : uint8_t {
  kRegister,
  kAttend,
  kBeat,
  kStart,
  kWrite,
  kPush,
  kApply,
  kRead,
  kHold,
  kMeet,
  kStatus,
  kLeave,
  kFail
};
inline constexpr int kServerCalls = 13;
// Returns "Register", ...
[[nodiscard]] std::string_view server_call_name(ServerCall call);

// The longest message, gRPC's own default.
inline constexpr size_t kLongestServerMessage = size_t{4} << 20;

// A message to send: `head`, and behind it bytes that are read where they are while `keep` lives.
struct OutgoingMessage {
  std::string head{};
  const void* data = nullptr;
  size_t bytes = 0;
  std::shared_ptr<const void> keep{};
};

// A message that has arrived, in the pieces in which it was received.
class IncomingMessage {
 public:
  IncomingMessage() = default;
  IncomingMessage(std::vector<std::span<const std::byte>> pieces, std::shared_ptr<const void> keep);

  size_t size() const { return size_; }
  // Returns a copy of the first `most` bytes, or of all where there are fewer.
  [[nodiscard]] std::string prefix(size_t most) const;
  // Copies bytes [offset, offset + bytes), which the message has, to `to`.
  void copy(size_t offset, void* to, size_t bytes) const;

 private:
  std::vector<std::span<const std::byte>> pieces_;
  std::shared_ptr<const void> keep_;
  size_t size_ = 0;
};

// What a responder does when its caller is gone or has given up. Any thread.
class CallEnd {
 public:
  // Calls `function` once when end() is called: at once where it was already.
  void on_end(std::function<void()> function);
  void end();

 private:
  std::mutex mutex_;
  bool ended_ = false;              // guarded
  std::function<void()> function_;  // guarded
};

// The answer that a call waits for. It is given once; a responder that dies without one refuses the call.
class ServerResponder {
 public:
  virtual ~ServerResponder() = default;
  virtual void reply(OutgoingMessage message) = 0;
  virtual void refuse(const core::Error& error) = 0;
  // Calls `function` once when the caller is gone or has given up: at once where it is already. Any thread.
  virtual void on_cancelled(std::function<void()> function) = 0;
};

// Receives the calls of all workers, on the transport's threads, several at a time. Must not throw.
using ServerHandler =
    std::function<void(ServerCall call, IncomingMessage message, std::shared_ptr<ServerResponder> responder)>;

// Listens as long as it lives. Its destructor refuses calls that are not answered, and returns when no handler runs.
class ServerListener {
 public:
  virtual ~ServerListener() = default;
  virtual uint16_t port() const = 0;
};
// Throws kIo when the address or the files cannot be used, kUnsupported without gRPC.
std::unique_ptr<ServerListener> listen_for_workers(const std::string& address, const TlsFiles& tls,
                                                   ServerHandler handler);

// How a call has ended.
struct CallOutcome {
  enum class Kind : uint8_t {
    kAnswered,
    kRefused,      // by the server, with `error`
    kUnreachable,  // no connection, or it has closed: `error` says why
    kCancelled,    // by cancel()
  } kind = Kind::kAnswered;
  IncomingMessage message{};
  std::optional<core::Error> error{};
};

// A connection to one server, which the first call makes, and makes again after a failure.
class ServerChannel {
 public:
  // cancel() must have been called, and all calls have ended.
  virtual ~ServerChannel() = default;
  // Starts a call. `done` is called once, on one of the transport's threads.
  virtual void call(ServerCall call, OutgoingMessage message, std::function<void(CallOutcome)> done) = 0;
  // Ends all calls that are not answered, and those that are started later.
  virtual void cancel() = 0;
};
// Throws kIo for files that cannot be read, kUnsupported without gRPC.
std::unique_ptr<ServerChannel> connect_to_server(const std::string& address, const TlsFiles& tls);

}  // namespace trainyard::parallel
