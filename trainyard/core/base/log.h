// Messages to people, on stderr:
//
//   log::info("read {} shards", n);
//
// Results (tables, step lines, JSON) go to stdout and are not messages. A call returns when its message is written.
// spdlog does the writing.
#pragma once

#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace trainyard::core::log {

enum class Level { kDebug, kInfo, kWarning, kError, kOff };

// Sets the lowest level that is written, and returns the one before.
Level set_level(Level level);
// Sets the prefix of every line, such as "rank 3". Empty means none.
void set_origin(std::string_view origin);
void write(Level level, std::string_view message);
void flush();

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace trainyard::core::log
