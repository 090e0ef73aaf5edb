// What gRPC's two sides share. Included by sources that use gRPC only.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "trainyard/parallel/servers/transport.h"

namespace trainyard::parallel {

// Returns the path of a call: "/trainyard.ParameterServer/Push". The strings live as long as the program.
const std::string& grpc_method(ServerCall call);

// Returns a buffer that reads the message's data where they are; only the head is copied.
grpc::ByteBuffer to_buffer(OutgoingMessage message);
// Returns the message in the buffer's own memory.
IncomingMessage from_buffer(const grpc::ByteBuffer& buffer);

// The texts of TlsFiles.
struct TlsTexts {
  std::string cert, key, ca;
};
// Reads the files. Throws kNotFound and kIo.
TlsTexts read_tls_files(const TlsFiles& files);

// Sends what gRPC reports to our log's debug level, once. gRPC writes every refused connection to stderr otherwise.
void quiet_grpc();

}  // namespace trainyard::parallel
