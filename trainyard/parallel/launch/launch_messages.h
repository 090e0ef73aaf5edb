// What `trainyard launch` and its agents, one beside each rank, tell each other: bodies of core::Frame. What is read
// may come from anybody who reaches the port, so each field is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "trainyard/core/sockets/frame.h"
#include "trainyard/parallel/launch/process.h"

namespace trainyard::parallel {

// The first message of an agent.
struct HelloMessage {
  std::string token;  // that launch made; who does not know it is a stranger
  int rank = 0, ranks = 1;
  std::string host;  // name of the agent's machine
};
// From launch: all agents are there.
struct StartMessage {};
// From launch: send this signal to the rank.
struct SignalMessage {
  int signal = 0;
};
// From an agent: whole lines that the rank wrote, each with its newline.
struct OutputMessage {
  bool is_error = false;  // standard error, else standard output
  std::string lines;
};
// From an agent, its last message.
struct EndMessage {
  ProcessEnd end;
};
using LaunchMessage = std::variant<HelloMessage, StartMessage, SignalMessage, OutputMessage, EndMessage>;

inline constexpr size_t kLongestHello = 1024;       // bytes of a body from somebody who has not said the token
inline constexpr size_t kLongestMessage = 1 << 18;  // bytes of a body
inline constexpr int kMostRanks = 4096;

// Returns the message as the bytes of a frame's kind and body.
core::Frame encode_message(const LaunchMessage& message);
// Throws kCorruptData for what is no message.
LaunchMessage decode_message(const core::Frame& frame);

}  // namespace trainyard::parallel
