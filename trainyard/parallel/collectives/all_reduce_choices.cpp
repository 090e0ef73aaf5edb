#include "trainyard/parallel/collectives/all_reduce_choices.h"

#include <cmath>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/machine/user_cache.h"

namespace trainyard::parallel {
namespace {

constexpr const char* kFormat = "trainyard all-reduces 1";
constexpr uint64_t kMostBytes = uint64_t{1} << 22;

// Returns nothing for text that is not "bytes algorithm=seconds".
std::optional<AllReduceTime> time_in(const std::string& text) {
  AllReduceTime time;
  const size_t space = text.find(' '), equals = text.rfind('=');
  if (space == std::string::npos || equals == std::string::npos || equals <= space + 1) return std::nullopt;
  std::istringstream bytes(text.substr(0, space)), seconds(text.substr(equals + 1));
  time.algorithm = text.substr(space + 1, equals - space - 1);
  if (!(bytes >> time.bytes) || !(seconds >> time.seconds)) return std::nullopt;
  if (time.bytes < 1 || !std::isfinite(time.seconds) || time.seconds <= 0) return std::nullopt;
  return time;
}

// Returns nothing for a line that is not whole.
std::optional<std::pair<std::string, AllReduceChoice>> choice_in(const std::string& line) {
  std::istringstream fields(line);
  std::string description, tried;
  AllReduceChoice choice;
  if (!std::getline(fields, choice.spec, '\t') || !std::getline(fields, description, '\t')) return std::nullopt;
  if (choice.spec.empty() || description.empty()) return std::nullopt;
  while (std::getline(fields, tried, '\t')) {
    const auto time = time_in(tried);
    if (!time) return std::nullopt;
    choice.times.push_back(*time);
  }
  return std::pair(description, choice);
}

}  // namespace

AllReduceChoices& AllReduceChoices::instance() {
  static AllReduceChoices choices(core::user_cache_folder("all_reduces.txt"));
  return choices;
}

AllReduceChoices::AllReduceChoices(std::string file) : file_(std::move(file)) {
  try {
    if (!file_.empty() && core::local_file_system().exists(file_)) read();
  } catch (const core::Error& error) {
    core::log::warning("measured all-reduces are not used: {}", error.what());
  }
}

// Behind the line kFormat, the file has a line for each choice, separated by tabs: the spec, the description, and for
// each time the tensor's bytes, the algorithm, "=" and the seconds.
void AllReduceChoices::read() {
  std::istringstream lines(core::local_file_system().read_file(file_, kMostBytes));
  std::string line;
  if (!std::getline(lines, line) || line != kFormat) return;
  while (std::getline(lines, line)) {
    if (auto choice = choice_in(line)) choices_.insert_or_assign(std::move(choice->first), std::move(choice->second));
  }
}

std::optional<AllReduceChoice> AllReduceChoices::find(const std::string& description) const {
  const std::lock_guard lock(mutex_);
  const auto found = choices_.find(description);
  return found == choices_.end() ? std::nullopt : std::optional(found->second);
}

void AllReduceChoices::keep(const std::string& description, const AllReduceChoice& choice) {
  const std::lock_guard lock(mutex_);
  try {
    if (!file_.empty() && core::local_file_system().exists(file_)) read();
    choices_[description] = choice;
    if (file_.empty()) return;
    core::local_file_system().make_directories(core::parent_path(file_));
    core::local_file_system().write_file_atomically(file_, text());
  } catch (const core::Error& error) {
    choices_[description] = choice;
    core::log::warning("measured all-reduces are not kept: {}", error.what());
  }
}

std::string AllReduceChoices::text() const {
  std::string result = fmt::format("{}\n", kFormat);
  for (const auto& [description, choice] : choices_) {
    result += fmt::format("{}\t{}", choice.spec, description);
    for (const AllReduceTime& time : choice.times) {
      result += fmt::format("\t{} {}={:.9f}", time.bytes, time.algorithm, time.seconds);
    }
    result += '\n';
  }
  return result;
}

std::map<std::string, AllReduceChoice> AllReduceChoices::all() const {
  const std::lock_guard lock(mutex_);
  return choices_;
}

}  // namespace trainyard::parallel
