// The messages between the ranks of a process group and rank 0's hub (core/sockets/frame.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/process_group/liveness.h"

namespace trainyard::parallel {

enum class GroupMessage : uint8_t {
  kHello = 1,  // rank to hub: Hello
  kWelcome,    // hub to all: all ranks have connected
  kText,       // rank to hub: SharedTexts with its own text
  kTexts,      // hub to ranks: SharedTexts
  kNote,       // rank to hub to rank 0: a text
  kFailed,     // rank to hub to all: an Error
  kBeat,       // rank to hub: its Activity; hub to ranks: rank 0's
  kLeave,      // rank to hub
  kGone,       // hub to all: all ranks leave
};

// Longest bodies: before the token has been received, and from a rank.
inline constexpr size_t kLongestGroupHello = 4096, kLongestGroupMessage = size_t{64} << 20;

struct Hello {
  std::string token;
  int64_t rank = 0, size = 0;
};

struct SharedTexts {
  int64_t call = 0;  // number of the call on its rank
  std::string what;
  bool from_all = false;  // true: texts of all ranks; false: rank 0's
  std::vector<std::string> texts;
};

// Encode and decode messages. Decoding throws kCorruptData.
std::string encode(const Hello& hello);
Hello decode_hello(std::string_view body);
std::string encode(const SharedTexts& texts);
SharedTexts decode_texts(std::string_view body);
std::string encode(const Activity& activity);
Activity decode_activity(std::string_view body);
std::string encode(const core::Error& error);
core::Error decode_error(std::string_view body);

}  // namespace trainyard::parallel
