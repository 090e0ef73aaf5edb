// The worker's side of gRPC's generic interface.
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/process_group/group_message.h"
#include "trainyard/parallel/servers/grpc_support.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

constexpr int kFirstBackoffMs = 100, kLongestBackoffMs = 1000;

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const TlsFiles& files) {
  if (!files.used()) return grpc::InsecureChannelCredentials();
  TlsTexts texts = read_tls_files(files);
  return grpc::SslCredentials({.pem_root_certs = std::move(texts.ca),
                               .pem_private_key = std::move(texts.key),
                               .pem_cert_chain = std::move(texts.cert)});
}

std::shared_ptr<grpc::Channel> make_channel(const std::string& address, const TlsFiles& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kLongestServerMessage));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestBackoffMs);
  // A proxy that the environment names is for the way out of the cluster.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Workers of one process, as in tests, have a connection each.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, channel_credentials(tls), arguments);
}

// Calls end on a thread of the channel. gRPC's own threads for callbacks end with their last user, which may be one of
// them: a call that is released there behind its channel. They wait for themselves then, and the process aborts.
class GrpcChannel : public ServerChannel {
 public:
  GrpcChannel(const std::string& address, const TlsFiles& tls)
      : stub_(make_channel(address, tls)), thread_({.name = "server calls"}, [this] { run(); }) {}

  ~GrpcChannel() override {
    queue_.Shutdown();
    thread_.join();
  }

  void call(ServerCall call, OutgoingMessage message, std::function<void(CallOutcome)> done) override {
    auto* const started = new Started{.request = to_buffer(std::move(message)), .done = std::move(done)};
    const std::lock_guard lock(mutex_);
    calls_.insert(started);
    if (cancelled_) started->context.TryCancel();
    started->reader = stub_.PrepareUnaryCall(&started->context, grpc_method(call), started->request, &queue_);
    started->reader->StartCall();
    started->reader->Finish(&started->reply, &started->status, started);
  }

  void cancel() override {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (Started* const each : calls_) each->context.TryCancel();
  }

 private:
  struct Started {
    grpc::ClientContext context{};
    grpc::ByteBuffer request{}, reply{};
    grpc::Status status{};
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader{};
    std::function<void(CallOutcome)> done{};
  };

  void run() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
      std::unique_ptr<Started> started(static_cast<Started*>(tag));
      bool cancelled = false;
      {
        const std::lock_guard lock(mutex_);
        calls_.erase(started.get());
        cancelled = cancelled_;
      }
      CallOutcome outcome = outcome_of(started->status, cancelled);
      if (outcome.kind == CallOutcome::Kind::kAnswered) outcome.message = from_buffer(started->reply);
      const std::function<void(CallOutcome)> done = std::move(started->done);
      started.reset();
      done(std::move(outcome));
    }
  }

  static CallOutcome outcome_of(const grpc::Status& status, bool cancelled) {
    using Kind = CallOutcome::Kind;
    if (status.ok()) return {};
    const Error text(ErrorCode::kPeerFailed, status.error_message());
    switch (status.error_code()) {
      case grpc::StatusCode::CANCELLED:
        return {.kind = cancelled ? Kind::kCancelled : Kind::kUnreachable, .error = text};
      case grpc::StatusCode::UNAVAILABLE:
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        return {.kind = Kind::kUnreachable, .error = text};
      case grpc::StatusCode::FAILED_PRECONDITION:
        try {
          return {.kind = Kind::kRefused, .error = decode_error(status.error_details())};
        } catch (const Error&) {
          return {.kind = Kind::kRefused, .error = text};
        }
      default:
        return {.kind = Kind::kRefused, .error = text};
    }
  }

  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::mutex mutex_;
  std::set<Started*> calls_;  // guarded
  bool cancelled_ = false;    // guarded
  core::Thread thread_;
};

}  // namespace

std::unique_ptr<ServerChannel> connect_to_server(const std::string& address, const TlsFiles& tls) {
  quiet_grpc();
  return std::make_unique<GrpcChannel>(address, tls);
}

}  // namespace trainyard::parallel
