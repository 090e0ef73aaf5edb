// The two streams that `trainyard launch` writes. All of its output goes through here, so that no line is split, and a
// slow reader blocks only the ranks that write.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trainyard::parallel {

class TerminalStream {
 public:
  explicit TerminalStream(int descriptor) : descriptor_(descriptor) {}

  void add(std::string_view lines) { unwritten_.append(lines); }
  bool has_unwritten() const { return !unwritten_.empty(); }
  size_t unwritten_bytes() const { return unwritten_.size(); }
  int descriptor() const { return descriptor_; }
  // Writes as much as the reader accepts, without waiting. Throws kIo when the stream is closed.
  void write_some();

 private:
  int descriptor_;
  std::string unwritten_;
};

struct Terminal {
  TerminalStream output{1}, error{2};

  // Adds a line of launch itself to the standard error.
  void write_line(std::string_view message);
  // Returns true while the reader is so far behind that ranks must wait.
  bool is_behind() const;
  // Blocks until all is written.
  void finish();
};

}  // namespace trainyard::parallel
