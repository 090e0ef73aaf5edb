// A progress bar for people: drawn on stderr when that is a terminal, otherwise nothing at all is written.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace trainyard::core {

// One thread at a time.
class ProgressBar {
 public:
  // total <= 0: unknown, shows the count alone.
  ProgressBar(std::string label, int64_t total, bool enabled = stderr_is_terminal());
  ~ProgressBar();  // clears the line

  // Redraws at most ten times a second.
  void advance_to(int64_t done, const std::string& note = "");
  // Draws a line of the caller's own instead, cut at the terminal's width, as rarely.
  void show(const std::string& text);
  // Clears the line so that other output can be written; the next advance draws it again.
  void clear();

  // True when stderr is a terminal that can erase a line: TERM is set, and not to "dumb".
  static bool stderr_is_terminal();
  // Erases the bar that is on the screen, if one is, before something else writes to stderr (log does): it comes back
  // with its next draw. Any thread.
  static void erase_drawn();
  // The line as drawn for `width` columns, without control characters: "train  42% [=====>      ] 84/200 note".
  std::string line(size_t width) const;

 private:
  bool draws_now();
  void draw(const std::string& text);

  std::string label_, note_;
  int64_t total_, done_ = 0;
  bool enabled_;
  std::chrono::steady_clock::time_point last_draw_;
};

}  // namespace trainyard::core
