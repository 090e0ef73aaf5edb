// A text file that grows by whole lines over several runs. Other processes see each line when append() returns.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

class LineFile {
 public:
  // Opens the file, and makes its directory. First takes out a last line that a crash cut off: it is no line. Throws
  // kIo, kNoSpace.
  LineFile(const std::string& path, core::FileSystem& files);

  // Adds a line, which has no line break. After a failure every further call throws.
  void append(std::string_view line);
  // Closes the file. Only after it has returned is it known that all went well.
  void close() { file_->close(); }

 private:
  std::unique_ptr<core::WritableFile> file_;
};

// Takes out the lines that `keep` refuses; the file is written again, whole or not at all, only where there are any.
// Does nothing where there is no file. Throws kIo, kNoSpace.
void keep_lines(const std::string& path, core::FileSystem& files, const std::function<bool(std::string_view)>& keep);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
