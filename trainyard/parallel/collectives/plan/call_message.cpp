#include "trainyard/parallel/collectives/plan/call_message.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

static_assert(std::is_trivially_copyable_v<CallMessage>);

CallMessage CallMessage::of(const CollectiveCall& call, uint64_t sequence, int rank) {
  CallMessage message;
  message.sequence = sequence;
  message.kind = static_cast<int32_t>(call.kind);
  message.argument = call.argument;
  message.type = static_cast<int32_t>(call.type);
  if (call.shape.size() > kMostDimensions) {
    message.refuse({ErrorCode::kInvalidArgument,
                    {.problem = "a collective cannot be done",
                     .where = fmt::format("rank {}, {}", rank, describe(call)),
                     .expected = fmt::format("at most {} dimensions", kMostDimensions),
                     .actual = std::to_string(call.shape.size())}});
    return message;
  }
  message.dimensions = static_cast<int32_t>(call.shape.size());
  std::copy(call.shape.begin(), call.shape.end(), message.shape);
  return message;
}

void CallMessage::refuse(const Error& error) {
  refused = 1;
  const core::ErrorDetail& detail = error.detail();
  size_t at = 0;
  for (const std::string* part : {&detail.problem, &detail.where, &detail.expected, &detail.actual, &detail.remedy}) {
    constexpr size_t kLongest = kText / 5 - 1;
    const std::string_view short_part = std::string_view(*part).substr(0, kLongest);
    std::memcpy(text + at, short_part.data(), short_part.size());
    at += short_part.size();
    text[at++] = '\0';
  }
}

size_t CallMessage::bytes() const {
  return refused == 0 ? offsetof(CallMessage, text) : sizeof(CallMessage);
}

void CallMessage::validate(uint64_t wanted) const {
  const bool sane = magic == kMagic && sequence == wanted && dimensions >= 0 && dimensions <= kMostDimensions &&
                    kind >= 0 && kind <= static_cast<int32_t>(CollectiveCall::Kind::kBarrier) &&
                    (kind != static_cast<int32_t>(CollectiveCall::Kind::kAllReduce) || (argument >= 0 && argument < 4));
  if (sane) return;
  throw Error(ErrorCode::kCorruptData,
              {.problem = "a neighbour's message is no message of this collective",
               .expected = fmt::format("magic {:#x}, call {}", kMagic, wanted),
               .actual = fmt::format("magic {:#x}, call {}, kind {}", magic, sequence, kind),
               .remedy = "start all processes from the same program, and let nobody else send through their MPI"});
}

CollectiveCall CallMessage::call() const {
  return {.kind = static_cast<CollectiveCall::Kind>(kind),
          .argument = argument,
          .type = static_cast<at::ScalarType>(type),
          .shape = {shape, shape + dimensions},
          .tensor = {},
          .problem = ""};
}

std::optional<Error> CallMessage::refusal() const {
  if (refused == 0) return std::nullopt;
  std::array<std::string, 5> parts;
  size_t at = 0;
  for (std::string& part : parts) {
    const size_t left = kText - at;
    part.assign(text + at, strnlen(text + at, left));
    at = std::min(kText, at + part.size() + 1);
  }
  return Error(ErrorCode::kInvalidArgument,
               {.problem = parts[0], .where = parts[1], .expected = parts[2], .actual = parts[3], .remedy = parts[4]});
}

}  // namespace trainyard::parallel
