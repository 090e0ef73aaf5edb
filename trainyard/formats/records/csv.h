// Comma-separated values as RFC 4180 describes them: fields in double quotes may hold commas, line breaks and, doubled,
// quotes. Lines end with LF or CRLF. A byte order mark at the beginning and blank lines are ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::formats {

struct CsvRow {
  int64_t line = 0;  // number of the line in which the row begins, from 1
  std::vector<std::string> fields{};
};

// Calls `use` with each row of `text`, the header first. `where` names the file in errors. Throws kCorruptData, with
// the line, for a quote that does not end, text behind a closing quote, a quote within a field that does not begin with
// one, a null byte, and a row whose number of fields differs from that of the first row.
void read_csv(std::string_view text, const std::string& where, const std::function<void(CsvRow& row)>& use);

}  // namespace trainyard::formats
