// The index of a TFRecord file that DALI's tfrecord2idx writes: a line "offset size" a record, where size counts the
// frame (docs/formats/tfrecord.md).
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

// Where the records of one file are. They follow each other without gaps, so 8 bytes a record are enough.
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

// Reads an index file. Throws kCorruptData with the line where there are no two numbers, a size is below the frame's,
// or a record does not begin where the one before it ends.
RecordIndex parse_record_index(std::string_view text);

// What is needed before any record is: how many there are, and the size of the file that was indexed. Looks at the last
// line and counts the others. Throws kCorruptData as above.
struct RecordIndexSummary {
  size_t records = 0;
  uint64_t file_size = 0;
};
RecordIndexSummary summarize_record_index(std::string_view text);

// Returns the lines, each with a line break, as tfrecord2idx writes them.
[[nodiscard]] std::string format_record_index(const RecordIndex& index);

}  // namespace trainyard::formats
