#include "trainyard/formats/records/record_index.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace trainyard::formats {
namespace {

struct Line {
  uint64_t offset = 0, size = 0;
};

core::Error malformed(size_t line, std::string expected, std::string_view actual) {
  return {core::ErrorCode::kCorruptData,
          {.problem = "index of TFRecords is malformed",
           .where = fmt::format("line {}", line),
           .expected = std::move(expected),
           .actual = fmt::format("'{}'", actual.substr(0, 60)),
           .remedy = "write it again with trainyard data index"}};
}

// Takes the first line from `text`.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

Line parse_line(std::string_view text, size_t number) {
  Line line;
  const char* const end = text.data() + text.size();
  const auto offset = std::from_chars(text.data(), end, line.offset);
  if (offset.ec == std::errc() && offset.ptr != end && *offset.ptr == ' ') {
    const auto size = std::from_chars(offset.ptr + 1, end, line.size);
    uint64_t behind = 0;
    if (size.ec == std::errc() && size.ptr == end && line.size >= kTfRecordFrameBytes &&
        !__builtin_add_overflow(line.offset, line.size, &behind)) {
      return line;
    }
  }
  throw malformed(number, fmt::format("offset and size, at least {}", kTfRecordFrameBytes), text);
}

}  // namespace

RecordIndex::RecordIndex(const std::vector<RecordSpan>& spans) {
  ends_.reserve(spans.size());
  for (const RecordSpan& span : spans) ends_.push_back(span.offset + span.length + kTfRecordFrameBytes);
}

RecordIndex parse_record_index(std::string_view text) {
  RecordIndex index;
  while (!text.empty()) {
    const std::string_view text_line = take_line(text);
    const Line line = parse_line(text_line, index.size() + 1);
    if (line.offset != index.file_size()) {
      throw malformed(index.size() + 1, fmt::format("a record at offset {}", index.file_size()), text_line);
    }
    index.ends_.push_back(line.offset + line.size);
  }
  return index;
}

RecordIndexSummary summarize_record_index(std::string_view text) {
  if (text.empty()) return {};
  if (text.ends_with('\n')) text.remove_suffix(1);
  const auto breaks = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  const size_t last_break = text.rfind('\n');
  const std::string_view last = last_break == std::string_view::npos ? text : text.substr(last_break + 1);
  const Line line = parse_line(last, breaks + 1);
  return {.records = breaks + 1, .file_size = line.offset + line.size};
}

std::string format_record_index(const RecordIndex& index) {
  std::string text;
  for (size_t i = 0; i < index.size(); ++i) {
    const RecordSpan span = index.span(i);
    fmt::format_to(std::back_inserter(text), "{} {}\n", span.offset, span.length + kTfRecordFrameBytes);
  }
  return text;
}

}  // namespace trainyard::formats
