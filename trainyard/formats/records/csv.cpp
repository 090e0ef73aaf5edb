#include "trainyard/formats/records/csv.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::formats {
namespace {

using core::Error;
using core::ErrorCode;

class CsvParser {
 public:
  CsvParser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  bool at_end() const { return at_ == text_.size(); }

  // Reads the next row. Returns false for a blank line.
  bool read(CsvRow& row) {
    row.line = line_;
    row.fields.clear();
    if (ends_line()) {
      skip_line_end();
      return false;
    }
    for (;;) {
      row.fields.push_back(peek() == '"' ? quoted_field(row.line) : plain_field(row.line));
      if (at_end() || ends_line()) break;
      ++at_;  // the comma
    }
    if (!at_end()) skip_line_end();
    return true;
  }

  [[noreturn]] void refuse(const char* problem, int64_t line, const std::string& expected,
                           const std::string& actual = "") const {
    throw Error(ErrorCode::kCorruptData,
                {.problem = problem,
                 .where = fmt::format("{}, line {}", where_, line),
                 .expected = expected,
                 .actual = actual,
                 .remedy = "write the table with a program that quotes fields as RFC 4180 says"});
  }

 private:
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool ends_line() const {
    if (at_end()) return false;
    return text_[at_] == '\n' || (text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n');
  }
  void skip_line_end() {
    if (at_end()) return;
    at_ += text_[at_] == '\r' ? 2 : 1;
    ++line_;
  }

  std::string plain_field(int64_t line) {
    const size_t begin = at_;
    for (; !at_end() && text_[at_] != ',' && !ends_line(); ++at_) {
      if (text_[at_] == '"') refuse("a quote within a field that does not begin with one", line, "the field in quotes");
      if (text_[at_] == '\0') refuse("a null byte in a table", line, "text");
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string quoted_field(int64_t line) {
    std::string field;
    for (++at_;; ++at_) {
      if (at_end()) refuse("a quoted field does not end", line, "a closing quote");
      if (text_[at_] == '\0') refuse("a null byte in a table", line, "text");
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] != '"') {
        field += text_[at_];
        continue;
      }
      if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        field += text_[++at_];
        continue;
      }
      ++at_;
      break;
    }
    if (!at_end() && text_[at_] != ',' && !ends_line()) {
      refuse("text behind a quoted field", line, "a comma or the end of the line", fmt::format("{:?}", text_[at_]));
    }
    return field;
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

}  // namespace

void read_csv(std::string_view text, const std::string& where, const std::function<void(CsvRow& row)>& use) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  CsvParser parser(text, where);
  CsvRow row;
  size_t columns = 0;
  while (!parser.at_end()) {
    if (!parser.read(row)) continue;
    if (columns == 0) columns = row.fields.size();
    if (row.fields.size() != columns) {
      parser.refuse("a row of another number of fields than the first one", row.line, std::to_string(columns),
                    std::to_string(row.fields.size()));
    }
    use(row);
  }
}

}  // namespace trainyard::formats
