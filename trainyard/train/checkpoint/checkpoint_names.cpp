#include "trainyard/train/checkpoint/checkpoint_names.h"

#include <array>
#include <atomic>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace trainyard::train {
namespace {

constexpr std::string_view kPrefix = "model.ckpt-";
constexpr std::array<std::pair<CheckpointPurpose, std::string_view>, 3> kPurposes{
    {{CheckpointPurpose::kTemporary, "tmp"},
     {CheckpointPurpose::kReplaced, "replaced"},
     {CheckpointPurpose::kDamaged, "damaged"}}};

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool take_number(std::string_view& text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

// ".<purpose>-<process>-<number>"
std::optional<CheckpointPurpose> parse_purpose(std::string_view text) {
  for (const auto& [purpose, word] : kPurposes) {
    std::string_view rest = text;
    int64_t number = 0;
    if (take(rest, ".") && take(rest, word) && take(rest, "-") && take_number(rest, number) && take(rest, "-") &&
        take_number(rest, number) && rest.empty()) {
      return purpose;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<CheckpointName> parse_checkpoint_name(std::string_view text) {
  CheckpointName name;
  std::string_view rest = text;
  int64_t step = 0;
  if (take(rest, kPrefix)) {
    if (!take_number(rest, step)) return std::nullopt;
    name.step = step;
  } else if (!take(rest, kBestCheckpoint)) {
    return std::nullopt;
  }
  name.plain = text.substr(0, text.size() - rest.size());
  if (rest.empty()) return name;
  const std::optional<CheckpointPurpose> purpose = parse_purpose(rest);
  if (!purpose) return std::nullopt;
  name.purpose = *purpose;
  return name;
}

std::string checkpoint_name(int64_t step) {
  return fmt::format("{}{}", kPrefix, step);
}

std::string checkpoint_path_for(CheckpointPurpose purpose, std::string_view path) {
  static std::atomic<uint64_t> counter{0};
  std::string_view word;
  for (const auto& [known, text] : kPurposes) {
    if (known == purpose) word = text;
  }
  return fmt::format("{}.{}-{}-{}", path, word, ::getpid(), counter.fetch_add(1));
}

}  // namespace trainyard::train
