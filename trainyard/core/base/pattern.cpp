#include "trainyard/core/base/pattern.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include "trainyard/core/base/registry.h"

namespace trainyard::core {

bool matches_pattern(const std::string& name, const std::string& pattern) {
  return ::fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
}

namespace {

constexpr size_t kMostNames = 5;
constexpr const char* kWildcards = "*?[]";

// Returns the longest part of the pattern without wildcards, and without points and slashes at its ends.
std::string literal_part(const std::string& pattern) {
  std::string longest;
  for (size_t begin = 0; begin < pattern.size();) {
    const size_t end = std::min(pattern.find_first_of(kWildcards, begin), pattern.size());
    if (end - begin > longest.size()) longest = pattern.substr(begin, end - begin);
    begin = end + 1;
  }
  constexpr const char* kBetween = "./";
  const size_t first = longest.find_first_not_of(kBetween);
  return first == std::string::npos ? "" : longest.substr(first, longest.find_last_not_of(kBetween) - first + 1);
}

// Returns the names' beginnings that end in front of a point: "layer1", "layer1.0", "layer1.0.conv1".
std::vector<std::string> layers_of(const std::vector<std::string>& names) {
  std::set<std::string> layers;
  for (const std::string& name : names) {
    for (size_t point = name.find('.'); point != std::string::npos; point = name.find('.', point + 1)) {
      layers.insert(name.substr(0, point));
    }
  }
  return {layers.begin(), layers.end()};
}

std::string some_of(const std::vector<std::string>& names) {
  const auto shown = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMostNames));
  return fmt::format("{}{}", fmt::join(names.begin(), shown, ", "), shown == names.end() ? "" : ", ...");
}

}  // namespace

std::string names_near_pattern(const std::string& pattern, const std::vector<std::string>& names) {
  const std::string wanted = literal_part(pattern);
  const std::vector<std::string> layers = layers_of(names);
  std::string meant;
  if (std::find(layers.begin(), layers.end(), wanted) != layers.end()) {
    meant = wanted + ".*";
  } else if (const std::string name = nearest_name(wanted, names); !name.empty()) {
    meant = name;
  } else if (const std::string layer = nearest_name(wanted, layers); !layer.empty()) {
    meant = layer + ".*";
  }
  std::vector<std::string> near;
  for (const std::string& name : names) {
    const bool holds = !wanted.empty() && name.find(wanted) != std::string::npos;
    if (holds || (!meant.empty() && matches_pattern(name, meant))) near.push_back(name);
  }
  const std::string question = meant.empty() ? "" : fmt::format("did you mean '{}'? ", meant);
  if (near.empty()) return fmt::format("{}there are {}", question, names.empty() ? "none" : some_of(names));
  return fmt::format("{}near are {}", question, some_of(near));
}

}  // namespace trainyard::core
