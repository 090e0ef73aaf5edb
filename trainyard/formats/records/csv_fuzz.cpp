// A file as comma-separated values. What is accepted gives the same rows when its fields are quoted and read again.
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/formats/records/csv.h"
#include "trainyard/formats/testing/hostile_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::formats;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  expect_value_or_error([&] {
    std::vector<std::vector<std::string>> rows;
    read_csv(text, "input", [&](CsvRow& row) { rows.push_back(row.fields); });
    std::string quoted;
    for (const std::vector<std::string>& row : rows) {
      for (size_t i = 0; i < row.size(); ++i) {
        quoted += i == 0 ? "\"" : ",\"";
        for (const char c : row[i]) quoted += c == '"' ? "\"\"" : std::string(1, c);
        quoted += '"';
      }
      quoted += "\r\n";
    }
    std::vector<std::vector<std::string>> again;
    read_csv(quoted, "input", [&](CsvRow& row) { again.push_back(row.fields); });
    if (rows != again) std::abort();
  });
  return 0;
}
