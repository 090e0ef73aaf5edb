#include "trainyard/parallel/launch/lines.h"

#include <utility>

namespace trainyard::parallel {

std::string LineSplitter::take(std::string_view bytes) {
  std::string lines;
  if (const size_t last = bytes.rfind('\n'); last != std::string_view::npos) {
    lines = std::exchange(rest_, "");
    lines.append(bytes.substr(0, last + 1));
    bytes.remove_prefix(last + 1);
  }
  rest_.append(bytes);
  while (rest_.size() > kLongestLine) {
    lines.append(rest_, 0, kLongestLine);
    lines.push_back('\n');
    rest_.erase(0, kLongestLine);
  }
  return lines;
}

std::string LineSplitter::finish() {
  if (!rest_.empty()) rest_.push_back('\n');
  return std::exchange(rest_, "");
}

std::string with_prefix(std::string_view prefix, std::string_view lines) {
  std::string result;
  while (!lines.empty()) {
    const size_t newline = lines.find('\n');
    const size_t length = newline == std::string_view::npos ? lines.size() : newline + 1;
    result.append(prefix).append(lines.substr(0, length));
    lines.remove_prefix(length);
  }
  return result;
}

}  // namespace trainyard::parallel
