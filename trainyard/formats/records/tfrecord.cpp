#include "trainyard/formats/records/tfrecord.h"

#include <array>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/files/crc32c.h"
#include "trainyard/formats/containers/corrupt_file.h"
#include "trainyard/formats/containers/little_endian.h"

namespace trainyard::formats {
namespace {

constexpr uint64_t kRecordLengthBytes = 8;
constexpr uint64_t kHeaderBytes = 12;  // the length and its checksum

core::Error corrupt_record(const core::ReadableFile& file, uint64_t offset, std::string problem, std::string expected,
                           std::string actual) {
  return corrupt_file(file, offset,
                      {.problem = std::move(problem),
                       .expected = std::move(expected),
                       .actual = std::move(actual),
                       .remedy = "copy or write the file again"});
}

// Nothing when the checksum of `data` is the stored one.
std::optional<core::Error> checksum_error(const core::ReadableFile& file, uint64_t offset, std::string_view what,
                                          std::string_view data, uint32_t stored) {
  const uint32_t computed = masked_crc32c(data);
  if (computed == stored) return std::nullopt;
  return corrupt_record(file, offset, fmt::format("checksum of the record's {} differs", what),
                        fmt::format("masked crc32c {:#010x}", stored), fmt::format("{:#010x}", computed));
}

// The length that the header says, checked against its checksum and against what is left of the file.
core::Result<uint64_t> parse_header(const core::ReadableFile& file, uint64_t offset, const char* header) {
  const auto length = load_little_endian<uint64_t>(header);
  const auto stored = load_little_endian<uint32_t>(header + kRecordLengthBytes);
  if (auto error = checksum_error(file, offset, "length", {header, kRecordLengthBytes}, stored))
    return *std::move(error);
  const uint64_t available = file.size() - offset;
  if (available < kTfRecordFrameBytes || length > available - kTfRecordFrameBytes) {
    return corrupt_record(file, offset, "record is longer than the rest of the file",
                          fmt::format("{} bytes of data", length),
                          fmt::format("{}", available < kTfRecordFrameBytes ? 0 : available - kTfRecordFrameBytes));
  }
  return length;
}

}  // namespace

uint32_t masked_crc32c(std::string_view data) {
  return mask_crc32c(core::crc32c(data));
}

uint32_t mask_crc32c(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

uint64_t read_tfrecord_length(const core::ReadableFile& file, uint64_t offset) {
  const uint64_t available = file.size() - offset;
  if (available < kHeaderBytes) {
    throw corrupt_record(file, offset, "file ends within the header of a record", fmt::format("{} bytes", kHeaderBytes),
                         fmt::format("{}", available));
  }
  std::array<char, kHeaderBytes> header;
  file.read_at(offset, std::as_writable_bytes(std::span(header)));
  return parse_header(file, offset, header.data()).value();
}

std::vector<RecordSpan> index_tfrecord(const core::ReadableFile& file) {
  std::vector<RecordSpan> spans;
  for (uint64_t offset = 0; offset < file.size();) {
    const uint64_t length = read_tfrecord_length(file, offset);
    spans.push_back({offset, length});
    offset += kTfRecordFrameBytes + length;
  }
  return spans;
}

core::Result<std::string_view> read_tfrecord(const core::ReadableFile& file, RecordSpan span, std::string& buffer) {
  const uint64_t size = file.size();
  if (span.offset > size || size - span.offset < kTfRecordFrameBytes ||
      span.length > size - span.offset - kTfRecordFrameBytes) {
    return corrupt_record(file, span.offset, "file ends before the record does",
                          fmt::format("{} bytes of data", span.length), fmt::format("a file of {} bytes", size));
  }
  const uint64_t framed = kTfRecordFrameBytes + span.length;
  if (buffer.size() < framed) buffer.resize(framed);
  file.read_at(span.offset, std::as_writable_bytes(std::span(buffer.data(), framed)));
  core::Result<uint64_t> length = parse_header(file, span.offset, buffer.data());
  if (!length.ok()) return length.error();
  if (length.value() != span.length) {
    return corrupt_record(file, span.offset, "record has another length than its index says",
                          fmt::format("{} bytes", span.length), fmt::format("{}", length.value()));
  }
  const std::string_view data(buffer.data() + kHeaderBytes, span.length);
  const auto stored = load_little_endian<uint32_t>(data.data() + data.size());
  if (auto error = checksum_error(file, span.offset, "data", data, stored)) return *std::move(error);
  return data;
}

bool TfRecordReader::next(std::string& record) {
  if (offset_ >= file_.size()) return false;
  const RecordSpan span{offset_, read_tfrecord_length(file_, offset_)};
  record.assign(read_tfrecord(file_, span, buffer_).value());
  offset_ += kTfRecordFrameBytes + span.length;
  return true;
}

void TfRecordWriter::write(std::string_view data) {
  std::string header;
  append_little_endian<uint64_t>(header, data.size());
  append_little_endian(header, masked_crc32c(header));
  std::string footer;
  append_little_endian(footer, masked_crc32c(data));
  file_->write(header);
  file_->write(data);
  file_->write(footer);
}

}  // namespace trainyard::formats
