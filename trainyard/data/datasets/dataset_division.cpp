#include "trainyard/data/datasets/dataset_division.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/random/random.h"

namespace trainyard::data {
namespace {

// Returns how many of a class's images are for validation.
int64_t validation_count(int64_t images, double part) {
  if (images < 2) return 0;
  return std::clamp<int64_t>(std::llround(static_cast<double>(images) * part), 1, images - 1);
}

// Marks the validation samples of one class, which are sorted by their hashes.
void mark_class(const std::vector<int64_t>& sorted, const std::string& class_name, const Division& division,
                std::vector<bool>& validates) {
  const auto images = std::ssize(sorted);
  if (division.folds == 0) {
    const int64_t count = validation_count(images, division.validation);
    for (int64_t place = 0; place < count; ++place) validates[sorted[place]] = true;
    return;
  }
  const auto first = static_cast<int64_t>(core::stable_hash(class_name) % static_cast<uint64_t>(division.folds));
  for (int64_t place = 0; place < images; ++place) {
    const int64_t fold = (place * division.folds / images + first) % division.folds;
    validates[sorted[place]] = fold == division.fold;
  }
}

// Returns how the log describes a division.
std::string described(const Division& division) {
  if (division.folds > 0) {
    return fmt::format("fold {} of the {} folds 0 to {} of each class", division.fold, division.folds,
                       division.folds - 1);
  }
  if (division == Division{}) return "a fifth of each class";
  return fmt::format("{:.6g} % of each class", division.validation * 100);
}

std::optional<double> number_of(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

void Division::validate() const {
  const auto refuse = [](const char* problem, const std::string& expected, const std::string& actual) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = problem, .expected = expected, .actual = actual});
  };
  if (folds == 0 && !(validation > 0 && validation < 1)) {
    refuse("part of the images for validation is out of range", "above 0 and below 1", fmt::format("{}", validation));
  }
  constexpr int64_t kMostFolds = 1'000'000;
  if (folds != 0 && (folds < 2 || folds > kMostFolds)) {
    refuse("number of folds is out of range", fmt::format("2 to {}", kMostFolds), std::to_string(folds));
  }
  if (folds != 0 && (fold < 0 || fold >= folds)) {
    refuse("number of the fold is out of range", fmt::format("0 to {}", folds - 1), std::to_string(fold));
  }
}

std::vector<bool> validation_samples(const NamedSamples& samples, const Division& division) {
  division.validate();
  std::vector<std::vector<int64_t>> classes(samples.group_names.size());
  std::vector<uint64_t> hashes(static_cast<size_t>(samples.size));
  for (int64_t i = 0; i < samples.size; ++i) {
    hashes[i] = core::stable_hash(samples.name(i));
    classes[samples.group(i)].push_back(i);
  }
  std::vector<bool> validates(static_cast<size_t>(samples.size));
  for (size_t c = 0; c < classes.size(); ++c) {
    std::sort(classes[c].begin(), classes[c].end(), [&](int64_t a, int64_t b) {
      return hashes[a] != hashes[b] ? hashes[a] < hashes[b] : samples.name(a) < samples.name(b);
    });
    mark_class(classes[c], samples.group_names[c], division, validates);
  }
  return validates;
}

std::unique_ptr<Dataset> part_of_samples(const std::shared_ptr<const Dataset>& whole, const NamedSamples& samples,
                                         Subset subset, const Division& division, std::string_view because,
                                         const std::string& where) {
  const std::vector<bool> validates = validation_samples(samples, division);
  std::vector<int64_t> part;
  for (int64_t i = 0; i < samples.size; ++i) {
    if (validates[i] == (subset == Subset::kValidation)) part.push_back(i);
  }
  if (part.empty()) {
    const bool few = division.folds == 0;
    throw NoSuchSubset({.problem = few ? "no class has two images, of which one could be for validation"
                                       : fmt::format("fold {} has no {} images", division.fold, subset_name(subset)),
                        .where = where,
                        .expected = few ? "a folder val, or classes of several images" : "more images, or fewer folds",
                        .actual = fmt::format("{} images", samples.size)});
  }
  core::log::info("{}{}: {}, by a hash of the images' names, is for validation; {} of {} images are {} images", where,
                  because, described(division), part.size(), samples.size, subset_name(subset));
  return std::make_unique<PartOfDataset>(whole, std::move(part));
}

NamedSamples named_samples(const std::shared_ptr<const FolderDataset>& whole) {
  return {.size = whole->size(),
          .group = [whole](int64_t i) { return whole->label(i); },
          .name = [whole](int64_t i) { return whole->name_in_class(i); },
          .group_names = whole->label_names()};
}

std::string division_text(const Division& division) {
  if (division.folds == 0) return fmt::format("validation_split={}", division.validation);
  return fmt::format("folds={},fold={}", division.folds, division.fold);
}

std::string division_flags(const Division& division) {
  if (division.folds == 0) return fmt::format("--validation_split={}", division.validation);
  return fmt::format("--folds={} --fold={}", division.folds, division.fold);
}

std::optional<Division> division_of_text(std::string_view text) {
  constexpr std::string_view kSplit = "validation_split=", kFolds = "folds=", kFold = ",fold=";
  Division division;
  if (text.starts_with(kSplit)) {
    const auto part = number_of(text.substr(kSplit.size()));
    if (!part) return std::nullopt;
    division.validation = *part;
  } else if (const size_t second = text.find(kFold); text.starts_with(kFolds) && second != std::string_view::npos) {
    const auto folds = number_of(text.substr(kFolds.size(), second - kFolds.size()));
    const auto fold = number_of(text.substr(second + kFold.size()));
    constexpr double kLargest = 1e9;
    if (!folds || !fold || !(*folds >= 1 && *folds <= kLargest) || !(*fold >= 0 && *fold <= kLargest)) {
      return std::nullopt;
    }
    division.folds = static_cast<int64_t>(*folds);
    division.fold = static_cast<int64_t>(*fold);
  } else {
    return std::nullopt;
  }
  try {
    division.validate();
  } catch (const core::Error&) {
    return std::nullopt;
  }
  return division;
}

}  // namespace trainyard::data
