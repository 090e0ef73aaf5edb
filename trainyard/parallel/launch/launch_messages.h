// The messages between `trainyard launch` and its agents, one for each rank: bodies of core::Frame. The sender is not
// trusted, so each field is checked.
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
  std::string token;  // made by launch; connections without it are refused
  int rank = 0, ranks = 1;
  std::string host;  // name of the agent's machine
};
// From launch: all agents have connected.
struct StartMessage {};
// From launch: send this signal to the rank.
struct SignalMessage {
  int signal = 0;
};
// From an agent: whole lines that the rank wrote, each with its newline.
struct OutputMessage {
  bool is_error = false;  // true: standard error; false: standard output
  std::string lines;
};
// From an agent, its last message.
struct EndMessage {
  ProcessEnd end;
};
using LaunchMessage = std::variant<HelloMessage, StartMessage, SignalMessage, OutputMessage, EndMessage>;

inline constexpr size_t kLongestAgentHello = 1024;  // bytes of a body before the token has been received
inline constexpr size_t kLongestMessage = 1 << 18;  // bytes of a body
inline constexpr int kMostRanks = 4096;

// Returns the message as the bytes of a frame's kind and body.
core::Frame encode_message(const LaunchMessage& message);
// Parses a message. Throws kCorruptData when it is invalid.
LaunchMessage decode_message(const core::Frame& frame);

}  // namespace trainyard::parallel
