// Splits bytes that arrive in pieces into whole lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trainyard::parallel {

inline constexpr size_t kLongestLine = 1 << 16;  // bytes; a longer line is split into several

class LineSplitter {
 public:
  // Returns the lines that `bytes` complete, each with its newline; "" when there is none. Keeps the rest, and splits
  // it when it becomes longer than kLongestLine.
  std::string take(std::string_view bytes);
  // Returns the rest as a line, or "" when there is none.
  std::string finish();

 private:
  std::string rest_;
};

// Returns `lines` with `prefix` in front of each.
std::string with_prefix(std::string_view prefix, std::string_view lines);

}  // namespace trainyard::parallel
