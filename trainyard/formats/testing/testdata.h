// Files for the tests of readers: in memory, and the golden ones of testdata/. For tests only.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>

#include "trainyard/core/files/file_system.h"

namespace trainyard::formats {

// A file in memory that remembers the longest read that was asked for.
class MemoryFile : public core::ReadableFile {
 public:
  explicit MemoryFile(std::string_view content) : content_(content) {}

  const std::string& path() const override { return path_; }
  uint64_t size() const override { return content_.size(); }
  void read_at(uint64_t offset, std::span<std::byte> out) const override {
    longest_read_ = std::max(longest_read_, out.size());
    if (offset > content_.size() || content_.size() - offset < out.size()) throw std::logic_error("read past the end");
    content_.copy(reinterpret_cast<char*>(out.data()), out.size(), offset);
  }
  size_t longest_read() const { return longest_read_; }

 private:
  const std::string path_ = "memory";
  const std::string content_;
  mutable size_t longest_read_ = 0;
};

// The content of a file of trainyard/formats/testdata, which scripts of tools/golden have made.
inline std::string testdata(std::string_view name) {
  return core::local_file_system().read_file(core::join_path(TRAINYARD_SOURCE_DIR "/trainyard/formats/testdata", name));
}

}  // namespace trainyard::formats
