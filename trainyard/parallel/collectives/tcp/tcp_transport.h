// Carries messages between processes over TCP, a connection for each pair: between the workers of a cluster whose hosts
// are listed by flags, which no launcher of MPI has started.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "trainyard/parallel/collectives/plan/message_transport.h"

namespace trainyard::parallel {

// Where a process listens for those before it.
struct TcpAddress {
  std::string host;
  uint16_t port = 0;
};

struct TcpTransportOptions {
  int process = 0;
  std::vector<TcpAddress> addresses{};  // of all processes; that of process 0 is not used
  // What all of these processes know and no other: who does not show it is hung up on. 64 bytes at most.
  std::string token{};
  std::chrono::milliseconds deadline = std::chrono::minutes(10);  // until all are connected
  // Bytes of messages that have come before their receive() and are kept. More are an error. Without a bound: a process
  // that is ahead sends all gradients of its step, whatever size the model has, and all of these processes are known.
  size_t most_kept_bytes = std::numeric_limits<size_t>::max();

  void validate() const;  // throws kInvalidArgument
};

// Connects the processes. Collective. Each listens at its own address until those before it have connected, and then no
// longer. Throws kIo when it cannot listen, kTimeout that names the first process that has not come, kCorruptData and
// kPeerFailed later for a message that is longer than its receive(), and a connection that is closed.
std::unique_ptr<MessageTransport> open_tcp_transport(const TcpTransportOptions& options);

}  // namespace trainyard::parallel
