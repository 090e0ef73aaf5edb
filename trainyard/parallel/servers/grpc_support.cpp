#include "trainyard/parallel/servers/grpc_support.h"

#include <array>
#include <mutex>
#include <string_view>

#include <fmt/format.h>
#include <grpc/support/log.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::parallel {

const std::string& grpc_method(ServerCall call) {
  static const auto* const kMethods = [] {
    auto* const methods = new std::array<std::string, kServerCalls>;
    for (int i = 0; i < kServerCalls; ++i) {
      (*methods)[static_cast<size_t>(i)] =
          "/trainyard.ParameterServer/" + std::string(server_call_name(static_cast<ServerCall>(i)));
    }
    return methods;
  }();
  return kMethods->at(static_cast<size_t>(call));
}

grpc::ByteBuffer to_buffer(OutgoingMessage message) {
  std::vector<grpc::Slice> slices;
  slices.emplace_back(message.head);
  if (message.bytes > 0) {
    // gRPC only reads, although it takes a pointer to what may be written.
    using Keep = std::shared_ptr<const void>;
    slices.emplace_back(
        const_cast<void*>(message.data), message.bytes, [](void* keep) { delete static_cast<Keep*>(keep); },
        new Keep(std::move(message.keep)));
  }
  return {slices.data(), slices.size()};
}

IncomingMessage from_buffer(const grpc::ByteBuffer& buffer) {
  auto slices = std::make_shared<std::vector<grpc::Slice>>();
  if (!buffer.Dump(slices.get()).ok()) slices->clear();
  std::vector<std::span<const std::byte>> pieces;
  for (const grpc::Slice& slice : *slices) {
    pieces.emplace_back(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
  }
  return {std::move(pieces), std::move(slices)};
}

TlsTexts read_tls_files(const TlsFiles& files) {
  core::FileSystem& system = core::local_file_system();
  return {system.read_file(files.cert), system.read_file(files.key), system.read_file(files.ca)};
}

void quiet_grpc() {
  static std::once_flag once;
  std::call_once(
      once, [] { gpr_set_log_function([](gpr_log_func_args* line) { core::log::debug("gRPC: {}", line->message); }); });
}

}  // namespace trainyard::parallel
