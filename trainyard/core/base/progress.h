// Draws a progress bar on stderr when stderr is a terminal, and writes nothing otherwise.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace trainyard::core {

// One thread at a time.
class ProgressBar {
 public:
  // `total` of 0 or less means unknown: the bar then shows the count alone.
  ProgressBar(std::string label, int64_t total, bool enabled = stderr_is_terminal());
  ~ProgressBar();  // clears the line

  // Redraws at most ten times a second.
  void advance_to(int64_t done, const std::string& note = "");
  // Draws the caller's own line instead of the bar, cut at the terminal's width. Redraws at most ten times a second,
  // too.
  void show(const std::string& text);
  // Clears the line, so that other output can be written. The next call of advance_to() or show() draws it again.
  void clear();

  // Returns true when stderr is a terminal that can erase a line: TERM is set, and not to "dumb".
  [[nodiscard]] static bool stderr_is_terminal();
  // Erases the bar that is on the screen, if there is one. The log calls it before it writes to stderr; the next draw
  // shows the bar again. Any thread may call it.
  static void erase_drawn();
  // Returns how many columns of the terminal a line may have; 79 where its width is not known.
  [[nodiscard]] static size_t columns();
  // Returns the line as drawn for `width` columns, without control characters: "train  42% [=====>      ] 84/200 note".
  [[nodiscard]] std::string line(size_t width) const;

 private:
  bool draws_now();
  void draw(const std::string& text);

  std::string label_, note_;
  int64_t total_, done_ = 0;
  bool enabled_;
  std::chrono::steady_clock::time_point last_draw_;
};

}  // namespace trainyard::core
