// What a build without gRPC has instead of grpc_listener.cpp and grpc_channel.cpp.
#include "trainyard/parallel/servers/transport.h"

namespace trainyard::parallel {
namespace {

[[noreturn]] void refuse_without_grpc() {
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = "parameter servers are not built in",
                     .where = "this build has no gRPC",
                     .remedy = "install libgrpc++-dev, then configure and build again; trainyard doctor lists what is "
                               "built in"});
}

}  // namespace

std::unique_ptr<ServerListener> listen_for_workers(const std::string& /*address*/, const TlsFiles& /*tls*/,
                                                   ServerHandler /*handler*/) {
  refuse_without_grpc();
}

std::unique_ptr<ServerChannel> connect_to_server(const std::string& /*address*/, const TlsFiles& /*tls*/) {
  refuse_without_grpc();
}

bool has_parameter_servers() {
  return false;
}

}  // namespace trainyard::parallel
