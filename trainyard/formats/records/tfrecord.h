// Reads and writes TFRecord files: records of bytes, each framed by its length and two checksums
// (docs/formats/tfrecord.md).
//
//   const auto file = core::local_file_system().open_read("train-00000-of-00002");
//   formats::TfRecordReader reader(*file);
//   for (std::string record; reader.next(record);) { ... }
//
//   const std::vector<formats::RecordSpan> spans = formats::index_tfrecord(*file);  // or in any order
//   std::string buffer;
//   core::Result<std::string_view> record = formats::read_tfrecord(*file, spans[7], buffer);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::formats {

// Bytes around the data of a record: length (8) and its checksum (4) before it, and the data's checksum (4) after it.
inline constexpr uint64_t kTfRecordFrameBytes = 16;

// One record in a file.
struct RecordSpan {
  uint64_t offset = 0;  // of the frame's first byte in the file
  uint64_t length = 0;  // bytes of data, without the frame

  bool operator==(const RecordSpan&) const = default;
};

// Returns the checksum as TFRecord stores it: rotated and offset, so that the checksum of data that contains checksums
// is still useful.
[[nodiscard]] uint32_t masked_crc32c(std::string_view data);
// Returns the same for a checksum that has been computed.
[[nodiscard]] uint32_t mask_crc32c(uint32_t crc);

// Returns all records of the file. Reads only the lengths, 12 bytes per record, and verifies their checksums, but not
// those of the data. Throws kCorruptData with path and offset. Records after a broken length cannot be found.
[[nodiscard]] std::vector<RecordSpan> index_tfrecord(const core::ReadableFile& file);

// Returns the length of the data of the record at `offset`, which must be before the end of the file. Checks the
// length's checksum, and that the record ends within the file. Throws kCorruptData with path and offset.
[[nodiscard]] uint64_t read_tfrecord_length(const core::ReadableFile& file, uint64_t offset);

// Reads the data of one record into `buffer`, which only grows, so reuse it. The result is valid until the buffer
// changes. Both checksums are verified, and the span is compared with the file's size before memory is allocated.
// Returns a kCorruptData error with path and offset; throws errors of the operating system. Many threads may call it at
// once.
core::Result<std::string_view> read_tfrecord(const core::ReadableFile& file, RecordSpan span, std::string& buffer);

// Reads a file from front to back.
class TfRecordReader {
 public:
  // `file` must outlive the reader.
  explicit TfRecordReader(const core::ReadableFile& file) : file_(file) {}

  // Reads the next record into `record` and returns true, or returns false at the end of the file. Throws kCorruptData
  // with path and offset; the reader's position does not change then.
  bool next(std::string& record);

  // Returns the offset of the record that next() will read.
  [[nodiscard]] uint64_t offset() const { return offset_; }

 private:
  const core::ReadableFile& file_;
  uint64_t offset_ = 0;
  std::string buffer_;
};

// Writes records one after the other. Errors are core::FileSystem's.
class TfRecordWriter {
 public:
  explicit TfRecordWriter(std::unique_ptr<core::WritableFile> file) : file_(std::move(file)) {}

  const std::string& path() const { return file_->path(); }
  void write(std::string_view data);
  // Gives buffered bytes to the operating system, so that other processes see them.
  void flush() { file_->flush(); }
  // Blocks until all bytes are on the medium.
  void sync() { file_->sync(); }
  // Writes what is left and closes the file. The content is known to be written only when it has returned.
  void close() { file_->close(); }

 private:
  std::unique_ptr<core::WritableFile> file_;
};

}  // namespace trainyard::formats
