#include "trainyard/data/tools/converted_classes.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/data/datasets/class_list.h"

namespace trainyard::data {
namespace {

std::string number_name(int64_t label) {
  return fmt::format("{:05}", label);
}

// A name that a folder can have; file systems take 255 bytes.
std::string folder_name(std::string name) {
  constexpr size_t kLongest = 240;  // with a number behind it
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '/' || c == '\0'; }, '_');
  if (name.starts_with('.')) name.front() = '_';
  if (name.size() <= kLongest) return name;
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;  // whole characters of UTF-8
  return name.substr(0, end);
}

}  // namespace

ConvertedClasses::ConvertedClasses(std::vector<std::string> names, int64_t label_count)
    : listed_(std::move(names)), label_count_(label_count) {}

std::string ConvertedClasses::add(int64_t label, const std::string& text, const std::string& where) {
  if (!listed_.empty() && label >= std::ssize(listed_)) {
    throw core::Error(core::ErrorCode::kCorruptData, {.problem = "label has no name",
                                                      .where = where,
                                                      .expected = fmt::format("one of {} classes", listed_.size()),
                                                      .actual = fmt::format("{}", label)});
  }
  {
    const std::lock_guard lock(mutex_);
    used_.insert(label);
  }
  if (!listed_.empty()) return listed_[static_cast<size_t>(label)];
  if (!text.empty()) texts_.add(label, text, where);
  return text;
}

// All labels that were met, and those between them; of a set whose labels have gaps, all that it may have.
int64_t ConvertedClasses::count() const {
  if (!listed_.empty()) return std::ssize(listed_);
  const std::lock_guard lock(mutex_);
  if (used_.empty()) return 0;
  const int64_t most = *used_.rbegin() + 1;
  return most == std::ssize(used_) ? most : std::max(most, label_count_);
}

// Empty where a class has no name.
std::vector<std::string> ConvertedClasses::by_number() const {
  if (!listed_.empty()) return listed_;
  std::vector<std::string> names(static_cast<size_t>(count()));
  for (auto& [label, text] : texts_.all()) names[static_cast<size_t>(label)] = text;
  return names;
}

std::vector<std::string> ConvertedClasses::names() const {
  std::vector<std::string> names = by_number();
  if (std::find(names.begin(), names.end(), "") != names.end()) return {};
  return names;
}

std::vector<std::string> ConvertedClasses::names_or_numbers() const {
  std::vector<std::string> names = by_number();
  for (size_t label = 0; label < names.size(); ++label) {
    if (names[label].empty()) names[label] = number_name(static_cast<int64_t>(label));
  }
  return names;
}

std::vector<std::string> ConvertedClasses::folder_names() const {
  const std::vector<std::string> names = by_number();
  std::vector<std::string> folders;
  std::unordered_map<std::string, int> times;
  for (size_t label = 0; label < names.size(); ++label) {
    const auto number = static_cast<int64_t>(label);
    folders.push_back(names[label].empty() ? number_name(number) : folder_name(names[label]));
    ++times[folders.back()];
  }
  std::vector<std::string> changed;
  for (size_t label = 0; label < folders.size(); ++label) {
    if (times[folders[label]] > 1) folders[label] += fmt::format(" {}", number_name(static_cast<int64_t>(label)));
    if (!names[label].empty() && folders[label] != names[label]) changed.push_back(names[label]);
  }
  if (!changed.empty()) {
    core::log::warning("{} classes get other names, which folders can have: {}", changed.size(),
                       quoted_classes(changed));
  }
  return folders;
}

bool ConvertedClasses::has(int64_t label) const {
  const std::lock_guard lock(mutex_);
  return !listed_.empty() || used_.contains(label);
}

}  // namespace trainyard::data
