#include "trainyard/recipes/shared/class_names.h"

#include <charconv>
#include <functional>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/data/datasets/label_texts.h"
#include "trainyard/recipes/shared/dataset_choice.h"
#include "trainyard/train/checkpoint/checkpoint_reader.h"

namespace trainyard::recipes {
namespace {

const std::string kSavedClassNames = "data/classes";
const std::string kOldLabelNames = "data/label_names";  // one a line, of earlier releases

using FindText = std::function<std::optional<std::string>(const std::string& name)>;

ClassNames class_names_from(const FindText& find, const train::CheckpointIdentity& identity) {
  ClassNames classes;
  if (const auto text = find(kSavedClassNames)) {
    classes.names = data::decode_class_names(*text);
    if (classes.names.empty()) return classes;
    const std::string& first = classes.names.front();
    std::from_chars(first.data(), first.data() + first.size(), classes.first_output);
    classes.names.erase(classes.names.begin());
  } else if (const auto old = find(kOldLabelNames)) {
    std::istringstream lines(*old);
    for (std::string line; std::getline(lines, line);) classes.names.push_back(line);
    // Only class folders had names there, and they began behind the background.
    const bool background = identity.dataset == "imagenet" &&
                            identity.num_classes == models::find_dataset(identity.dataset).benchmark_classes;
    if (background && !classes.names.empty()) classes.first_output = 1;
  }
  return classes;
}

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

const char* const kSavedLabelTexts = "input/label_texts";

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

void save_class_names(const ClassNames& classes, core::StateWriter& writer) {
  if (classes.names.empty()) return;
  std::vector<std::string> lines = {fmt::format("{}", classes.first_output)};
  lines.insert(lines.end(), classes.names.begin(), classes.names.end());
  writer.text(kSavedClassNames, data::encode_class_names(lines));
}

ClassNames load_class_names(const core::StateReader& reader, const train::CheckpointIdentity& identity) {
  return class_names_from(
      [&](const std::string& name) -> std::optional<std::string> {
        if (!reader.has(name)) return std::nullopt;
        return reader.text(name);
      },
      identity);
}

SavedClasses saved_classes_in(const core::StateReader& reader, const train::CheckpointInfo& checkpoint,
                              const train::CheckpointIdentity& identity) {
  SavedClasses saved{
      .checkpoint = checkpoint, .identity = identity, .classes = load_class_names(reader, identity), .label_texts = {}};
  if (reader.has(kSavedLabelTexts)) saved.label_texts = reader.text(kSavedLabelTexts);
  return saved;
}

SavedClasses read_saved_classes(const train::CheckpointInfo& checkpoint) {
  const train::Manifest manifest = train::read_manifest(checkpoint.path, core::local_file_system());
  const FindText find = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = manifest.values.find(name);
    const auto* text = found == manifest.values.end() ? nullptr : std::get_if<std::string>(&found->second);
    return text == nullptr ? std::nullopt : std::optional(*text);
  };
  return {.checkpoint = checkpoint,
          .identity = manifest.identity,
          .classes = class_names_from(find, manifest.identity),
          .label_texts = find(kSavedLabelTexts).value_or("")};
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

}  // namespace trainyard::recipes
