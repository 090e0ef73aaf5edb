// Writes lines for MLPerf's compliance, in the form of its v0.5 logger (mlperf_compliance on PyPI):
//
//   :::MLPv0.5.0 resnet 1539229878.120801210 (trainyard/frontends/tf_cnn/training.cpp:12) eval_size: 50000
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace trainyard::frontends {

// Writes a whole line to stderr, at once.
void write_to_stderr(std::string_view line);

struct ComplianceLogOptions {
  std::string benchmark = "resnet";                  // MLPerf's name of it
  std::function<bool(std::string_view tag)> has{};   // whether it has the tag: others are left out; empty: all
  std::function<void(std::string_view line)> write;  // gets a line without its line break; empty: stderr
  std::function<double()> wall_clock;                // seconds since 1970; empty: the system's clock
};

// Returns the options for a model that tf_cnn_benchmarks has such lines for: resnet50_v1.5 or ssd300.
[[nodiscard]] ComplianceLogOptions compliance_log_options(std::string_view model);

// A source location, by default that of the call. std::source_location is newer than our clang.
struct SourceLocation {
  const char* file = "";
  int line = 0;
  static constexpr SourceLocation current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {.file = file, .line = line};
  }
};

// One thread at a time.
class ComplianceLog {
 public:
  explicit ComplianceLog(ComplianceLogOptions options = {});

  // Writes a line, unless the benchmark has no such tag. `json` is the value as JSON on one line; empty: none. The line
  // names the caller.
  void write(std::string_view tag, std::string_view json = "", SourceLocation where = SourceLocation::current()) const;

 private:
  ComplianceLogOptions options_;
};

// Returns "file:line" with the file's path in the project: "trainyard/frontends/tf_cnn/training.cpp:12".
std::string place_in_project(const SourceLocation& where);

// Returns the text in quotes, as JSON.
std::string json_text(std::string_view text);
// Returns "true" or "false".
inline const char* json_boolean(bool value) {
  return value ? "true" : "false";
}

}  // namespace trainyard::frontends
