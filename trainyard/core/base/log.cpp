#include "trainyard/core/base/log.h"

#include <cstdlib>
#include <string>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "trainyard/core/base/progress.h"

namespace trainyard::core::log {
namespace {

spdlog::level::level_enum spdlog_level(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

Level level_of(spdlog::level::level_enum level) {
  for (const Level each : {Level::kDebug, Level::kInfo, Level::kWarning, Level::kError}) {
    if (spdlog_level(each) == level) return each;
  }
  return Level::kOff;
}

std::string pattern(std::string_view origin) {
  std::string text = "%H:%M:%S.%e %^%l%$ ";
  for (char c : origin) text += c == '%' ? std::string("%%") : std::string(1, c);
  if (!origin.empty()) text += ": ";
  return text + "%v";
}

// Never destroyed: objects that end after main still log.
spdlog::logger& logger() {
  static spdlog::logger* instance = [] {
    const auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    // https://no-color.org; that the terminal is dumb, or none, spdlog sees itself.
    if (const char* plain = std::getenv("NO_COLOR"); plain != nullptr && *plain != '\0') {
      sink->set_color_mode(spdlog::color_mode::never);
    }
    auto* made = new spdlog::logger("trainyard", sink);
    made->set_pattern(pattern(""));
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

}  // namespace

Level set_level(Level level) {
  const Level before = level_of(logger().level());
  logger().set_level(spdlog_level(level));
  return before;
}

void set_origin(std::string_view origin) {
  logger().set_pattern(pattern(origin));
}

void write(Level level, std::string_view message) {
  if (!logger().should_log(spdlog_level(level)) || level == Level::kOff) return;
  ProgressBar::erase_drawn();
  logger().log(spdlog_level(level), spdlog::string_view_t(message.data(), message.size()));
}

void flush() {
  logger().flush();
}

}  // namespace trainyard::core::log
