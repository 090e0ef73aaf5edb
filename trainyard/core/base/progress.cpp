#include "trainyard/core/base/progress.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace trainyard::core {
namespace {

constexpr size_t kMinimumBar = 10, kMaximumBar = 40;  // columns

// The one line at the bottom of the terminal, shared by bars and messages.
std::mutex screen_mutex;
bool on_screen = false;

void write_screen(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

// One column stays free: a character in the last one moves some terminals to the next line.
size_t ProgressBar::columns() {
  winsize size{};
  return (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80) - 1;
}

ProgressBar::ProgressBar(std::string label, int64_t total, bool enabled)
    : label_(std::move(label)), total_(total), enabled_(enabled) {}

ProgressBar::~ProgressBar() {
  clear();
}

void ProgressBar::advance_to(int64_t done, const std::string& note) {
  done_ = done;
  if (!enabled_) return;
  note_ = note;
  if (draws_now()) draw(line(columns()));
}

void ProgressBar::show(const std::string& text) {
  if (enabled_ && draws_now()) draw(text.substr(0, columns()));
}

bool ProgressBar::draws_now() {
  const auto now = std::chrono::steady_clock::now();
  if (last_draw_.time_since_epoch().count() != 0 && now - last_draw_ < std::chrono::milliseconds(100)) return false;
  last_draw_ = now;
  return true;
}

void ProgressBar::draw(const std::string& text) {
  std::lock_guard lock(screen_mutex);
  write_screen("\r\x1b[K" + text);
  on_screen = true;
}

void ProgressBar::clear() {
  if (!enabled_) return;
  erase_drawn();
  last_draw_ = {};
}

void ProgressBar::erase_drawn() {
  std::lock_guard lock(screen_mutex);
  if (!on_screen) return;
  write_screen("\r\x1b[K");
  on_screen = false;
}

bool ProgressBar::stderr_is_terminal() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && terminal != nullptr && *terminal != '\0' && std::strcmp(terminal, "dumb") != 0;
}

std::string ProgressBar::line(size_t width) const {
  std::string text = label_;
  if (total_ <= 0) {
    text += fmt::format(" {}", done_);
  } else {
    const double share = std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0);
    const std::string percent = fmt::format(" {:3d}%", static_cast<int>(share * 100));
    const std::string count = fmt::format(" {}/{}", done_, total_);
    const size_t fixed = text.size() + percent.size() + count.size() + note_.size() + (note_.empty() ? 0 : 1) + 3;
    text += percent;
    if (fixed + kMinimumBar <= width) {
      const size_t columns = std::min(width - fixed, kMaximumBar);
      const auto filled = static_cast<size_t>(share * static_cast<double>(columns));
      text += " [" + std::string(filled, '=') + (filled < columns ? ">" : "");
      text += std::string(filled < columns ? columns - filled - 1 : 0, ' ') + "]";
    }
    text += count;
  }
  if (!note_.empty()) text += " " + note_;
  return text.substr(0, width);
}

}  // namespace trainyard::core
