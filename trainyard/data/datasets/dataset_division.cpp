#include "trainyard/data/datasets/dataset_division.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "trainyard/core/random/random.h"

namespace trainyard::data {
namespace {

// Returns how many of a class's images are for validation: the fifth that is nearest, but neither none nor all.
int64_t validation_count(int64_t images) {
  const int64_t nearest = (images + kImagesForOneOfValidation / 2) / kImagesForOneOfValidation;
  return images < 2 ? 0 : std::max<int64_t>(1, nearest);
}

// Returns for each sample whether it is for validation.
std::vector<bool> validation_samples(const FolderDataset& whole) {
  struct Named {
    uint64_t hash;
    std::string name;
    int64_t sample;
    bool operator<(const Named& other) const { return std::tie(hash, name) < std::tie(other.hash, other.name); }
  };
  std::vector<bool> validates(static_cast<size_t>(whole.size()));
  std::vector<Named> images;
  // The images of a class follow each other.
  for (int64_t begin = 0; begin < whole.size();) {
    images.clear();
    int64_t end = begin;
    for (; end < whole.size() && whole.label(end) == whole.label(begin); ++end) {
      std::string name = whole.name_in_class(end);
      const uint64_t hash = core::stable_hash(name);
      images.push_back({hash, std::move(name), end});
    }
    std::sort(images.begin(), images.end());
    images.resize(static_cast<size_t>(validation_count(end - begin)));
    for (const Named& image : images) validates[static_cast<size_t>(image.sample)] = true;
    begin = end;
  }
  return validates;
}

}  // namespace

std::unique_ptr<Dataset> part_of_folders(const std::shared_ptr<const FolderDataset>& whole, Subset subset,
                                         const std::string& where) {
  const std::vector<bool> validates = validation_samples(*whole);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < whole->size(); ++i) {
    if (validates[static_cast<size_t>(i)] == (subset == Subset::kValidation)) samples.push_back(i);
  }
  if (samples.empty()) {
    throw NoSuchSubset({.problem = "no class has two images, of which one could be for validation",
                        .where = where,
                        .expected = "a folder val, or classes of several images",
                        .actual = fmt::format("{} images", whole->size())});
  }
  return std::make_unique<PartOfDataset>(whole, std::move(samples));
}

}  // namespace trainyard::data
