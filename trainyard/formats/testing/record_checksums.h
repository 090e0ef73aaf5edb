// Repairs the checksums of TFRecords, which a fuzzer does not guess. For tests only.
#pragma once

#include <string>
#include <string_view>

#include "trainyard/formats/containers/little_endian.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::formats {

inline void put_record_checksum(std::string& content, size_t at, size_t begin, size_t length) {
  std::string checksum;
  append_little_endian(checksum, masked_crc32c(std::string_view(content).substr(begin, length)));
  content.replace(at, checksum.size(), checksum);
}

// Returns the content with good checksums around each record, up to the first whose length does not fit.
inline std::string with_record_checksums(std::string content) {
  for (size_t at = 0; content.size() - at >= kTfRecordFrameBytes;) {
    put_record_checksum(content, at + 8, at, 8);
    const auto length = load_little_endian<uint64_t>(content.data() + at);
    if (length > content.size() - at - kTfRecordFrameBytes) break;
    put_record_checksum(content, at + 12 + length, at + 12, length);
    at += kTfRecordFrameBytes + length;
  }
  return content;
}

}  // namespace trainyard::formats
