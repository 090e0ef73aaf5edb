// What the tables of the flags' effects (testdata/flag_effects.tsv) have in common. For tests only.
//
// The arguments of a row are words with blanks between them. A word is a flag, or several flags with '&' between them
// that only go together: "--num_batches=0&--num_epochs=3". The words without the row's own flag are its companions:
// the row is compared with a run that has them, too, so that they make no difference.
#pragma once

#include <algorithm>
#include <cctype>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "trainyard/core/files/file_system.h"

namespace trainyard::core {

// Returns the flags of these arguments.
inline std::vector<std::string> flags_of_row(std::string arguments) {
  std::replace(arguments.begin(), arguments.end(), '&', ' ');
  std::istringstream words(arguments);
  return {std::istream_iterator<std::string>(words), {}};
}

// Returns the companions of the flag. Empty where no word has the flag's name: the row then has a short form of it.
inline std::string companions_of(const std::string& arguments, const std::string& flag) {
  const auto is_flag = [&](const std::string& each) {
    const std::string name = each.substr(0, each.find('='));
    return name == "--" + flag || name == "--no" + flag;
  };
  std::istringstream words(arguments);
  std::string companions;
  bool found = false;
  for (std::string word; words >> word;) {
    const std::vector<std::string> flags = flags_of_row(word);
    if (std::any_of(flags.begin(), flags.end(), is_flag)) {
      found = true;
    } else {
      companions += (companions.empty() ? "" : " ") + word;
    }
  }
  return found ? companions : "";
}

// Returns whether the text has the flag's name, as a word or behind "--no".
inline bool names_flag(const std::string& text, const std::string& flag) {
  const auto in_name = [&](size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
  };
  for (size_t at = text.find(flag); at != std::string::npos; at = text.find(flag, at + 1)) {
    const bool negated = at >= 4 && text.compare(at - 4, 4, "--no") == 0;
    if ((at == 0 || !in_name(at - 1) || negated) && !in_name(at + flag.size())) return true;
  }
  return false;
}

// Returns what is wrong with an effect "reviewed: WHY", and "" where nothing is: WHY has to name a test, each test that
// it names has to exist, and one of them to have the flag's name. Tests are named by their path below trainyard/ or
// tests/: "cli/bench_test", "tests/program_test.py". A table like the one at hand counts as a test, too.
inline std::string problem_of_review(const std::string& why, const std::string& flag) {
  const std::regex test(R"([a-z0-9_]+(/[a-z0-9_]+)+(_test\.py|_test|_effects\.tsv))");
  bool names_test = false, has_flag = false;
  for (std::sregex_iterator at(why.begin(), why.end(), test), end; at != end; ++at) {
    std::string path = at->str();
    if (!path.starts_with("tests/")) path = "trainyard/" + path;
    if (path.ends_with("_test")) path += ".cpp";
    const std::string file = join_path(TRAINYARD_SOURCE_DIR, path);
    if (!local_file_system().exists(file)) return path + " does not exist";
    names_test = true;
    has_flag = has_flag || names_flag(local_file_system().read_file(file), flag);
  }
  if (!names_test) return "it names no test";
  return has_flag ? "" : "no test that it names has the flag";
}

}  // namespace trainyard::core
