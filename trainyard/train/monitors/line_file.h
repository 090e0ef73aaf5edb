// A text file that grows by whole lines over several runs. Other processes see each line when append() returns.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

class LineFile {
 public:
  // Opens the file, and makes its directory. First takes out a last line that a crash cut off: it is no line. Throws
  // kIo, kNoSpace, and kInvalidArgument for a link, pipe or device (core/files/output_path.h).
  LineFile(const std::string& path, core::FileSystem& files);
  // Adds to a file that is open already.
  explicit LineFile(std::unique_ptr<core::WritableFile> file) : file_(std::move(file)) {}

  // Adds a line, which has no line break. After a failure every further call throws.
  void append(std::string_view line);
  // Closes the file. Only after it has returned is it known that all went well.
  void close() { file_->close(); }

 private:
  std::unique_ptr<core::WritableFile> file_;
};

// Takes out the lines that `keep` refuses; the file is written again, whole or not at all, only where there are any.
// Does nothing where there is no file. Throws as LineFile does.
void keep_lines(const std::string& path, core::FileSystem& files, const std::function<bool(std::string_view)>& keep);

// Returns the first MiB of the file; empty where there is none. Throws as LineFile does, and changes nothing.
[[nodiscard]] std::string read_beginning(const std::string& path, core::FileSystem& files);

// Throws kCorruptData, "not a file of metrics", for a file that something else has written and that begins so.
[[noreturn]] void refuse_foreign_file(const std::string& path, const std::string& expected, const std::string& begin);

// Returns whether a crash can have left `text` of a first line that begins with `begin`: a part of it, or zeros.
[[nodiscard]] bool is_torn_from(std::string_view text, std::string_view begin);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
