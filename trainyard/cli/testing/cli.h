// Runs commands of the program in this process, for tests: what they print and the code they end with.
#pragma once

#include <regex>
#include <sstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "trainyard/cli/command.h"

namespace trainyard::cli {

struct CommandResult {
  int code = 0;
  std::string out, err;
};

inline CommandResult run_command(const Arguments& arguments, core::StopToken stop = core::StopSource().token()) {
  std::ostringstream out;
  Console console{out, std::move(stop), {}};
  ::testing::internal::CaptureStderr();
  const int code = run(arguments, console);
  return {code, out.str(), ::testing::internal::GetCapturedStderr()};
}

// `base` with `more` at its end, without those flags of it that `more` gives, too: a sub-command refuses a repetition.
inline Arguments with_flags(Arguments base, const Arguments& more) {
  const auto name = [](const std::string& flag) { return flag.substr(0, flag.find('=')); };
  for (const std::string& flag : more) {
    std::erase_if(base, [&](const std::string& old) { return flag.starts_with("--") && name(old) == name(flag); });
  }
  base.insert(base.end(), more.begin(), more.end());
  return base;
}

// Numbers that no two runs share, as '#': speeds, seconds, and the losses of step lines are left to other tests.
inline std::string masked_numbers(const std::string& text) {
  return std::regex_replace(text, std::regex("[0-9]+\\.[0-9]+|[0-9]+(?= %)"), "#");
}

inline int count_lines(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);) count += std::regex_search(line, regex) ? 1 : 0;
  return count;
}

}  // namespace trainyard::cli
