// The server's side of gRPC's generic interface: messages are bytes, which wire.h reads.
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "trainyard/parallel/process_group/group_message.h"
#include "trainyard/parallel/servers/grpc_support.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

constexpr int kMostCallsOfAConnection = 256;
constexpr size_t kMostBufferBytes = size_t{1} << 30;  // of all connections
constexpr size_t kLongestErrorText = 1024;            // of each part: gRPC sends it among headers of 8 KiB
constexpr auto kShutdownTime = std::chrono::seconds(2);

std::string cut(const std::string& text) {
  return text.size() <= kLongestErrorText ? text : text.substr(0, kLongestErrorText - 3) + "...";
}

grpc::Status status_of(const Error& error) {
  const core::ErrorDetail& all = error.detail();
  const Error sent(error.code(), {.problem = cut(all.problem),
                                  .where = cut(all.where),
                                  .expected = cut(all.expected),
                                  .actual = cut(all.actual),
                                  .remedy = cut(all.remedy)});
  return {grpc::StatusCode::FAILED_PRECONDITION, cut(error.what()), encode(sent)};
}

// A call. gRPC owns it until OnDone(), which follows Finish().
class CallReactor : public grpc::ServerGenericBidiReactor {
 public:
  CallReactor(ServerCall call, const ServerHandler& handler) : call_(call), handler_(handler) { StartRead(&request_); }

  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override { delete this; }
  void answer(OutgoingMessage message) {
    reply_ = to_buffer(std::move(message));
    StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
  }

 private:
  class Responder;

  const ServerCall call_;
  const ServerHandler& handler_;
  grpc::ByteBuffer request_, reply_;
  std::mutex mutex_;
  std::weak_ptr<Responder> responder_;  // guarded
  bool cancelled_ = false;              // guarded
};

class CallReactor::Responder : public ServerResponder {
 public:
  explicit Responder(CallReactor* reactor) : reactor_(reactor) {}
  ~Responder() override {
    if (!answered_.exchange(true)) reactor_->Finish({grpc::StatusCode::CANCELLED, "the server has ended"});
  }
  void reply(OutgoingMessage message) override {
    if (!answered_.exchange(true)) reactor_->answer(std::move(message));
  }
  void refuse(const Error& error) override {
    if (!answered_.exchange(true)) reactor_->Finish(status_of(error));
  }
  void on_cancelled(std::function<void()> function) override { end_.on_end(std::move(function)); }
  void cancelled() { end_.end(); }

 private:
  CallReactor* const reactor_;  // lives until the call is answered
  std::atomic<bool> answered_ = false;
  CallEnd end_;
};

void CallReactor::OnReadDone(bool ok) {
  if (!ok) {
    Finish({grpc::StatusCode::INVALID_ARGUMENT, "a call without a message"});
    return;
  }
  const auto responder = std::make_shared<Responder>(this);
  bool cancelled = false;
  {
    const std::lock_guard lock(mutex_);
    responder_ = responder;
    cancelled = cancelled_;
  }
  if (cancelled) responder->cancelled();
  IncomingMessage message = from_buffer(request_);
  request_.Clear();
  handler_(call_, std::move(message), responder);
}

void CallReactor::OnCancel() {
  std::shared_ptr<Responder> responder;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    responder = responder_.lock();
  }
  if (responder) responder->cancelled();
}

class UnknownCall : public grpc::ServerGenericBidiReactor {
 public:
  UnknownCall() { Finish({grpc::StatusCode::UNIMPLEMENTED, "parameter servers have no such call"}); }
  void OnDone() override { delete this; }
};

class GrpcListener : public ServerListener, private grpc::CallbackGenericService {
 public:
  GrpcListener(const std::string& address, const TlsFiles& tls, ServerHandler handler) : handler_(std::move(handler)) {
    for (int i = 0; i < kServerCalls; ++i) {
      const auto call = static_cast<ServerCall>(i);
      calls_.emplace(grpc_method(call), call);
    }
    grpc::ServerBuilder builder;
    // Two servers at one port would each get some of the connections.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCallsOfAConnection);
    builder.SetMaxReceiveMessageSize(static_cast<int>(kLongestServerMessage));
    grpc::ResourceQuota quota("parameter server");
    quota.Resize(kMostBufferBytes);
    builder.SetResourceQuota(quota);
    int port = 0;
    builder.AddListeningPort(address, credentials(tls), &port);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      throw Error(ErrorCode::kIo, {.problem = "a parameter server cannot listen",
                                   .where = address,
                                   .expected = "an address of this machine with a port that is free",
                                   .remedy = tls.used() ? "look which process uses the port, and whether the TLS files "
                                                          "hold a certificate and its key"
                                                        : "look which process uses the port"});
    }
    port_ = static_cast<uint16_t>(port);
  }
  ~GrpcListener() override {
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownTime);
    server_->Wait();
  }
  uint16_t port() const override { return port_; }

 private:
  static std::shared_ptr<grpc::ServerCredentials> credentials(const TlsFiles& files) {
    if (!files.used()) return grpc::InsecureServerCredentials();
    TlsTexts texts = read_tls_files(files);
    grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = std::move(texts.ca);
    options.pem_key_cert_pairs.push_back({std::move(texts.key), std::move(texts.cert)});
    return grpc::SslServerCredentials(options);
  }
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    const auto found = calls_.find(context->method());
    if (found == calls_.end()) return new UnknownCall;
    return new CallReactor(found->second, handler_);
  }

  const ServerHandler handler_;
  std::map<std::string, ServerCall> calls_;
  uint16_t port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

std::unique_ptr<ServerListener> listen_for_workers(const std::string& address, const TlsFiles& tls,
                                                   ServerHandler handler) {
  quiet_grpc();
  return std::make_unique<GrpcListener>(address, tls, std::move(handler));
}

bool has_parameter_servers() {
  return true;
}

}  // namespace trainyard::parallel
