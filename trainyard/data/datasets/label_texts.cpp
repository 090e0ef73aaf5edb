#include "trainyard/data/datasets/label_texts.h"

#include <charconv>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/data/datasets/class_list.h"

namespace trainyard::data {
namespace {

const std::string kTexts = "label_texts", kComplete = "complete", kPartial = "partial";
constexpr const char* kRemedy = "the two must number their classes alike: write one of them anew";

core::Error two_texts(int64_t label, const std::string& said, const std::string& said_where, const std::string& text,
                      const std::string& where) {
  return {core::ErrorCode::kInvalidArgument,
          {.problem = fmt::format("label {} stands for two classes", label),
           .where = where,
           .expected = fmt::format("{}, as in {}", quoted_class(said), said_where),
           .actual = quoted_class(text),
           .remedy = kRemedy}};
}

}  // namespace

void LabelTexts::set_names(std::span<const std::string> names, int64_t first, const std::string& where) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < names.size(); ++i) {
    const int64_t label = first + static_cast<int64_t>(i);
    said_[label] = {names[i], where};
    labels_.emplace(names[i], label);
  }
  named_ = complete_ = true;
}

void LabelTexts::add(int64_t label, const std::string& text, const std::string& where) {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = said_.try_emplace(label, Said{text, where});
  if (!is_new) {
    if (found->second.text == text) return;
    throw two_texts(label, found->second.text, found->second.where, text, where);
  }
  const auto [other, is_first] = labels_.emplace(text, label);
  if (is_first || std::exchange(warned_, true)) return;
  core::log::warning("{} is the name of label {} in {}, and of label {} in {}", quoted_class(text), other->second,
                     said_.at(other->second).where, label, where);
}

void LabelTexts::check(int64_t label, const std::string& text, const std::string& where) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = said_.find(label); found != said_.end()) {
    if (found->second.text == text) return;
    throw two_texts(label, found->second.text, found->second.where, text, where);
  }
  const auto other = labels_.find(text);
  if (!complete_ || other == labels_.end()) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("class {} has two labels", quoted_class(text)),
                     .where = where,
                     .expected = fmt::format("label {}, as in {}", other->second, said_.at(other->second).where),
                     .actual = fmt::format("label {}", label),
                     .remedy = kRemedy});
}

void LabelTexts::set_complete() {
  const std::lock_guard lock(mutex_);
  complete_ = true;
}

std::string LabelTexts::text_of(int64_t label) const {
  const std::lock_guard lock(mutex_);
  const auto found = said_.find(label);
  return found == said_.end() ? "" : found->second.text;
}

std::map<int64_t, std::string> LabelTexts::all() const {
  const std::lock_guard lock(mutex_);
  std::map<int64_t, std::string> texts;
  for (const auto& [label, said] : said_) texts[label] = said.text;
  return texts;
}

void LabelTexts::save(core::StateWriter& writer) const {
  const std::lock_guard lock(mutex_);
  if (named_ || said_.empty()) return;
  std::vector<std::string> lines = {complete_ ? kComplete : kPartial};
  for (const auto& [label, said] : said_) lines.push_back(fmt::format("{} {}", label, said.text));
  writer.text(kTexts, encode_class_names(lines));
}

bool LabelTexts::load(const core::StateReader& reader, const std::string& where) {
  if (!reader.has(kTexts)) return false;
  load(reader.text(kTexts), where);
  return true;
}

void LabelTexts::load(const std::string& text, const std::string& where) {
  const std::lock_guard lock(mutex_);
  for (const std::string& line : decode_class_names(text)) {
    complete_ = complete_ || line == kComplete;
    int64_t label = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), label);
    if (error != std::errc() || end == line.data() + line.size() || *end != ' ') continue;
    std::string rest(end + 1, line.data() + line.size());
    labels_.emplace(rest, label);
    if (!named_) said_[label] = {std::move(rest), where};
  }
}

}  // namespace trainyard::data
