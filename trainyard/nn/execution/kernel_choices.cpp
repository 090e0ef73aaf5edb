#include "trainyard/nn/execution/kernel_choices.h"

#include <sstream>
#include <utility>

#include "trainyard/core/base/error.h"

namespace trainyard::nn {
namespace {

constexpr const char* kName = "choices";

}  // namespace

std::optional<std::string> KernelChoices::find(const std::string& what) const {
  const std::lock_guard lock(mutex_);
  const auto found = choices_.find(what);
  return found == choices_.end() ? std::nullopt : std::optional(found->second);
}

std::string KernelChoices::add(const std::string& what, const std::string& kernel) {
  const std::lock_guard lock(mutex_);
  return choices_.emplace(what, kernel).first->second;
}

std::map<std::string, std::string> KernelChoices::all() const {
  const std::lock_guard lock(mutex_);
  return choices_;
}

uint64_t KernelChoices::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

// One line a choice: kernel, tab, what it is for.
std::string KernelChoices::text() const {
  std::string result;
  for (const auto& [what, kernel] : all()) result += kernel + '\t' + what + '\n';
  return result;
}

void KernelChoices::replace(const std::string& text) {
  std::map<std::string, std::string> choices;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t tab = line.find('\t');
    if (tab == std::string::npos || tab == 0 || tab + 1 == line.size()) {
      throw core::Error(
          core::ErrorCode::kCorruptData,
          {.problem = "a choice of a kernel cannot be read", .expected = "kernel, tab, layer", .actual = line});
    }
    choices[line.substr(tab + 1)] = line.substr(0, tab);
  }
  const std::lock_guard lock(mutex_);
  if (choices == choices_) return;
  choices_ = std::move(choices);
  ++version_;
}

void KernelChoices::save(core::StateWriter& writer) const {
  const std::string choices = text();
  if (!choices.empty()) writer.text(kName, choices);
}

void KernelChoices::load(const core::StateReader& reader) {
  replace(reader.has(kName) ? reader.text(kName) : std::string());
}

void KernelChoices::agree(const std::function<std::string(const std::string& own)>& from_first) {
  replace(from_first(text()));
}

}  // namespace trainyard::nn
