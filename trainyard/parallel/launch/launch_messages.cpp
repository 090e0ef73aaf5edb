#include "trainyard/parallel/launch/launch_messages.h"

#include <csignal>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {
namespace {

enum MessageKind : uint8_t { kHello = 1, kStart, kSignal, kOutput, kEnd };

constexpr int64_t kVersion = 1;  // of what is said: both ends must be the same program

core::Error wrong_message(std::string problem, std::string expected, std::string actual) {
  return {core::ErrorCode::kCorruptData,
          {.problem = std::move(problem), .expected = std::move(expected), .actual = std::move(actual)}};
}

int number_within(core::BodyReader& body, const char* what, int64_t least, int64_t most) {
  const int64_t value = body.number();
  if (value < least || value > most) {
    throw wrong_message(fmt::format("a message has an impossible {}", what), fmt::format("{} to {}", least, most),
                        std::to_string(value));
  }
  return static_cast<int>(value);
}

HelloMessage read_hello(core::BodyReader& body) {
  HelloMessage hello;
  number_within(body, "version", kVersion, kVersion);
  hello.token = body.text();
  hello.ranks = number_within(body, "number of ranks", 1, kMostRanks);
  hello.rank = number_within(body, "rank", 0, hello.ranks - 1);
  hello.host = body.text();
  return hello;
}

OutputMessage read_output(core::BodyReader& body) {
  OutputMessage output;
  output.is_error = number_within(body, "stream", 0, 1) == 1;
  output.lines = body.text();
  if (!output.lines.ends_with('\n'))
    throw wrong_message("a message holds a part of a line", "a newline at its end", "");
  return output;
}

EndMessage read_end(core::BodyReader& body) {
  EndMessage message;
  message.end.kind = static_cast<ProcessEnd::Kind>(
      number_within(body, "kind of end", 0, static_cast<int>(ProcessEnd::Kind::kNotStarted)));
  message.end.value = number_within(body, "exit code", 0, std::numeric_limits<uint8_t>::max());
  message.end.text = body.text();
  return message;
}

}  // namespace

core::Frame encode_message(const LaunchMessage& message) {
  core::BodyWriter body;
  uint8_t kind = kStart;
  if (const auto* hello = std::get_if<HelloMessage>(&message)) {
    kind = kHello;
    body.number(kVersion).text(hello->token).number(hello->ranks).number(hello->rank).text(hello->host);
  } else if (const auto* signal = std::get_if<SignalMessage>(&message)) {
    kind = kSignal;
    body.number(signal->signal);
  } else if (const auto* output = std::get_if<OutputMessage>(&message)) {
    kind = kOutput;
    body.number(output->is_error ? 1 : 0).text(output->lines);
  } else if (const auto* end = std::get_if<EndMessage>(&message)) {
    kind = kEnd;
    body.number(static_cast<int>(end->end.kind)).number(end->end.value).text(end->end.text);
  }
  return {.kind = kind, .body = body.take()};
}

LaunchMessage decode_message(const core::Frame& frame) {
  core::BodyReader body(frame.body);
  LaunchMessage message;
  switch (frame.kind) {
    case kHello:
      message = read_hello(body);
      break;
    case kStart:
      message = StartMessage();
      break;
    case kSignal:
      message = SignalMessage{number_within(body, "signal", 1, NSIG - 1)};
      break;
    case kOutput:
      message = read_output(body);
      break;
    case kEnd:
      message = read_end(body);
      break;
    default:
      throw wrong_message("a message of no known kind", fmt::format("{} to {}", kHello + 0, kEnd + 0),
                          std::to_string(frame.kind));
  }
  body.end();
  return message;
}

}  // namespace trainyard::parallel
