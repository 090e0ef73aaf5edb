// Indexes and writes tar archives (docs/formats/webdataset.md). Reads ustar, pax and GNU archives with names of any
// length; writes ustar, with pax headers for names that do not fit.
//
//   const auto file = core::local_file_system().open_read("train-000000.tar");
//   for (const formats::TarMember& member : formats::index_tar(*file)) { ... }  // bytes at member.offset in the file
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::formats {

struct TarMember {
  std::string name{};   // with its folders, as stored
  uint64_t offset = 0;  // of its bytes in the archive
  uint64_t size = 0;    // bytes
  bool operator==(const TarMember&) const = default;
};

// Returns the regular files of an archive, in its order; folders, links and devices are skipped. Reads 512 bytes per
// file, long names, and what is behind the end. Every checksum is checked, and every size against the archive's. An
// archive may end without its two blocks of zeros. Throws kCorruptData with path and offset when the file is not a tar
// archive, is damaged or truncated, contains sparse files, or continues behind its end.
[[nodiscard]] std::vector<TarMember> index_tar(const core::ReadableFile& file);

// Checks that the header of a file of `size` bytes is still before `offset`. Archives have no checksum of their
// contents, and one that is rewritten while it is read would give the bytes of another file. Throws kCorruptData.
void check_tar_header(const core::ReadableFile& file, uint64_t offset, uint64_t size);

// Writes files one after the other, with mode 0644 and the time 0, so that the same files make the same archive. Errors
// are core::FileSystem's.
class TarWriter {
 public:
  explicit TarWriter(std::unique_ptr<core::WritableFile> file) : file_(std::move(file)) {}

  void write(std::string_view name, std::string_view content);
  uint64_t bytes() const { return bytes_; }
  // Writes the end of the archive. The content is known to be on the medium only when it has returned.
  void close();

 private:
  void write_member(std::string_view name, std::string_view content, char type);

  std::unique_ptr<core::WritableFile> file_;
  uint64_t bytes_ = 0;
};

}  // namespace trainyard::formats
