#include "trainyard/frontends/model/class_names.h"

#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/datasets/label_texts.h"
#include "trainyard/frontends/input/dataset_choice.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::frontends {
namespace {

constexpr const char* kReplacement = "\xef\xbf\xbd";  // U+FFFD, which JSON has for what is not UTF-8

[[noreturn]] void refuse(const ClassSide& before, const ClassSide& now, std::string difference,
                         const std::string& remedy) {
  const auto described = [](const ClassSide& side) {
    const std::vector<std::string>& names = side.classes.names;
    if (names.empty()) return side.count > 0 ? fmt::format("{} without names", side.count) : std::string("no names");
    return fmt::format("{} from output {} on: {}", names.size(), side.classes.first_output,
                       data::quoted_classes(names));
  };
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("other classes than those of {} ({})", before.where, difference),
                     .where = now.where,
                     .expected = described(before),
                     .actual = described(now),
                     .remedy = remedy});
}

}  // namespace

std::vector<std::string> ClassNames::by_output() const {
  if (names.empty()) return {};
  std::vector<std::string> all(static_cast<size_t>(first_output));
  all.insert(all.end(), names.begin(), names.end());
  return all;
}

ClassNames class_names_of(const data::Dataset& dataset, const models::DatasetInfo& info, int64_t num_classes) {
  return {.names = dataset.label_names(),
          .first_output = dataset.first_label() + label_offset(dataset, info, num_classes)};
}

int64_t class_count_of(const data::Dataset& dataset) {
  const std::vector<std::string> names = dataset.label_names();
  return names.empty() ? dataset.label_count() - dataset.first_label() : std::ssize(names);
}

void check_same_classes(const ClassSide& before, const ClassSide& now, const std::string& remedy) {
  const ClassNames &a = before.classes, &b = now.classes;
  if (a.names.empty() && b.names.empty()) return;
  if (!a.names.empty() && !b.names.empty()) {
    if (std::string difference = data::class_difference(a.names, b.names); !difference.empty()) {
      refuse(before, now, std::move(difference), remedy);
    }
    if (a.first_output != b.first_output) refuse(before, now, "their outputs begin elsewhere", remedy);
    return;
  }
  if (before.count != now.count) refuse(before, now, "one has names, the other numbers", remedy);
  if (a.first_output != b.first_output) refuse(before, now, "their outputs begin elsewhere", remedy);
  core::log::warning("{} has names of its {} classes, {} has none: they are taken to be in the same order",
                     a.names.empty() ? now.where : before.where, before.count,
                     a.names.empty() ? before.where : now.where);
}

SavedClasses saved_classes(const train::CheckpointFacts& facts, const train::CheckpointInfo& checkpoint) {
  return {.checkpoint = checkpoint,
          .identity = facts.identity,
          .classes = {.names = facts.classes, .first_output = facts.first_output},
          .label_texts = facts.label_texts};
}

std::vector<std::string> names_of_texts(const std::string& label_texts) {
  data::LabelTexts texts;
  texts.load(label_texts, "");
  std::vector<std::string> names;
  for (const auto& [label, text] : texts.all()) {
    if (label < 0 || label > int64_t{1} << 24) continue;
    if (static_cast<size_t>(label) >= names.size()) names.resize(static_cast<size_t>(label) + 1);
    names[static_cast<size_t>(label)] = text;
  }
  return names;
}

std::string texts_of_names(const std::vector<std::string>& names, int64_t first_output) {
  std::vector<std::string> lines = {"partial"};  // a file does not say whether a whole epoch was read
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty() || names[i].find(kReplacement) != std::string::npos) continue;
    lines.push_back(fmt::format("{} {}", first_output + static_cast<int64_t>(i), names[i]));
  }
  return data::encode_class_names(lines);
}

}  // namespace trainyard::frontends
