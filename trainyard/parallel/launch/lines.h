// Whole lines out of bytes that come in pieces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trainyard::parallel {

inline constexpr size_t kLongestLine = 1 << 16;  // bytes; a longer one is broken into several

class LineSplitter {
 public:
  // Returns the lines that `bytes` complete, each with its newline; "": none. Keeps the rest, and breaks it where it
  // has become longer than kLongestLine.
  std::string take(std::string_view bytes);
  // Returns what is left as a line; "": nothing.
  std::string finish();

 private:
  std::string rest_;
};

// Returns `lines` with `prefix` in front of each.
std::string with_prefix(std::string_view prefix, std::string_view lines);

}  // namespace trainyard::parallel
