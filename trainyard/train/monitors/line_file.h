// A text file that grows by whole lines over several runs, each line visible to other processes when append() returns.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "trainyard/core/files/file_system.h"

namespace trainyard::train {

class LineFile {
 public:
  // Makes the file's directory. A last line that a crash cut off is taken out first: it is no line. Throws kIo,
  // kNoSpace.
  LineFile(const std::string& path, core::FileSystem& files);

  // `line` has no line break. After a failure every further call throws.
  void append(std::string_view line);
  // Must be called for success to be known.
  void close() { file_->close(); }

 private:
  std::unique_ptr<core::WritableFile> file_;
};

// Takes out the lines that `keep` refuses, all or nothing; the file is written again only where there are any. Does
// nothing where there is no file. Throws kIo, kNoSpace.
void keep_lines(const std::string& path, core::FileSystem& files, const std::function<bool(std::string_view)>& keep);

}  // namespace trainyard::train
