// The worker's side of gRPC's generic interface.
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

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
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kFirstBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestBackoffMs);
  // A proxy that the environment names is for the way out of the cluster.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Workers of one process, as in tests, have a connection each.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, channel_credentials(tls), arguments);
}

class GrpcChannel : public ServerChannel {
 public:
  GrpcChannel(const std::string& address, const TlsFiles& tls) : stub_(make_channel(address, tls)) {}

  void call(ServerCall call, OutgoingMessage message, std::function<void(CallOutcome)> done) override {
    const auto started = std::make_shared<Started>();
    started->request = to_buffer(std::move(message));
    bool cancelled = false;
    {
      const std::lock_guard lock(mutex_);
      calls_.insert(started);
      cancelled = cancelled_;
    }
    if (cancelled) started->context.TryCancel();
    stub_.UnaryCall(&started->context, grpc_method(call), {}, &started->request, &started->reply,
                    [this, started, done = std::move(done)](const grpc::Status& status) {
                      const bool by_us = forget(started);
                      CallOutcome outcome = outcome_of(status, by_us);
                      if (outcome.kind == CallOutcome::Kind::kAnswered) outcome.message = from_buffer(started->reply);
                      done(std::move(outcome));
                    });
  }

  void cancel() override {
    std::set<std::shared_ptr<Started>> calls;
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      calls = calls_;
    }
    // gRPC may run what is behind a call on this thread.
    for (const auto& each : calls) each->context.TryCancel();
  }

 private:
  struct Started {
    grpc::ClientContext context{};
    grpc::ByteBuffer request{}, reply{};
  };

  // Returns whether the calls have been cancelled by cancel().
  bool forget(const std::shared_ptr<Started>& started) {
    const std::lock_guard lock(mutex_);
    calls_.erase(started);
    return cancelled_;
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

  grpc::GenericStub stub_;
  std::mutex mutex_;
  std::set<std::shared_ptr<Started>> calls_;  // guarded
  bool cancelled_ = false;                    // guarded
};

}  // namespace

std::unique_ptr<ServerChannel> connect_to_server(const std::string& address, const TlsFiles& tls) {
  quiet_grpc();
  return std::make_unique<GrpcChannel>(address, tls);
}

}  // namespace trainyard::parallel
