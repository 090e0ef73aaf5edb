// A text file that grows by whole lines over several runs. Other processes see each line when append() returns.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "trainyard/core/files/file_system.h"

namespace trainyard::train {

class LineFile {
 public:
  // Opens the file, and makes its directory. First removes an incomplete last line, which a crash has left. Throws kIo,
  // kNoSpace, and kInvalidArgument for a link, pipe or device (core/files/output_path.h).
  LineFile(const std::string& path, core::FileSystem& files);
  // Appends to a file that is already open.
  explicit LineFile(std::unique_ptr<core::WritableFile> file) : file_(std::move(file)) {}

  // Adds a line, which has no line break. After a failure every further call throws.
  void append(std::string_view line);
  // Closes the file. The content is known to be written only when it has returned.
  void close() { file_->close(); }

 private:
  std::unique_ptr<core::WritableFile> file_;
};

// Removes the lines for which `keep` returns false, by rewriting the file atomically if there are any. Does nothing
// when there is no file. Throws as LineFile does.
void keep_lines(const std::string& path, core::FileSystem& files, const std::function<bool(std::string_view)>& keep);

// Returns the first MiB of the file, or an empty text when there is no file. Throws as LineFile does, and changes
// nothing.
[[nodiscard]] std::string read_beginning(const std::string& path, core::FileSystem& files);

// Throws kCorruptData, "not a file of metrics", for a file that another program has written; `actual` is its beginning.
[[noreturn]] void refuse_foreign_file(const std::string& path, const std::string& expected, const std::string& begin);

// Returns whether `text` can be what a crash has left of a first line that begins with `begin`: a part of it, or zeros.
[[nodiscard]] bool is_torn_from(std::string_view text, std::string_view begin);

}  // namespace trainyard::train
