// Reads and writes the index of a TFRecord file, as DALI's tfrecord2idx does: a line "offset size" per record, where
// size includes the frame (docs/formats/tfrecord.md).
//
//   formats::RecordIndex index = formats::parse_record_index(files.read_file("idx/train-00000-of-00002.idx"));
//   formats::RecordSpan span = index.span(7);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::formats {

// The positions of the records in a file. Records follow each other without gaps, so 8 bytes per record are enough.
class RecordIndex {
 public:
  // Makes an index of records as index_tfrecord() finds them.
  explicit RecordIndex(const std::vector<RecordSpan>& spans);
  RecordIndex() = default;

  size_t size() const { return ends_.size(); }
  RecordSpan span(size_t record) const {
    const uint64_t begin = record == 0 ? 0 : ends_[record - 1];
    return {begin, ends_[record] - begin - kTfRecordFrameBytes};
  }
  // Returns the size of the file that is indexed.
  [[nodiscard]] uint64_t file_size() const { return ends_.empty() ? 0 : ends_.back(); }

 private:
  friend RecordIndex parse_record_index(std::string_view text);
  std::vector<uint64_t> ends_;
};

// Reads an index file. Throws kCorruptData with the line when it has no two numbers, a size is below the frame's, or a
// record does not begin where the previous one ends.
RecordIndex parse_record_index(std::string_view text);

// The number of records, and the size of the indexed file. Parses the last line and counts the others. Throws
// kCorruptData as above.
struct RecordIndexSummary {
  size_t records = 0;
  uint64_t file_size = 0;
};
RecordIndexSummary summarize_record_index(std::string_view text);

// Returns the lines, each with a line break, as tfrecord2idx writes them.
[[nodiscard]] std::string format_record_index(const RecordIndex& index);

}  // namespace trainyard::formats
