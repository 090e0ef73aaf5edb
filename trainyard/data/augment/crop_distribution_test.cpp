// Windows are distributed as TensorFlow's and torchvision's: what 20,000 of each gave
// (tools/golden/crop_distribution.py) against 20,000 of ours, by Kolmogorov and Smirnov's two-sample test.
#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/data/augment/crop.h"

namespace trainyard::data::crop_distribution_test {
namespace {

constexpr int kDraws = 20'000;

struct Case {
  ImageSize image;
  std::vector<Box> boxes;
  float covered;
};

// The cases of the script, by number.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {{{375, 500}, {}, 0.1F},
                                        {{500, 333}, {{0.2F, 0.3F, 0.9F, 0.8F}}, 0.1F},
                                        {{400, 400}, {{0.8F, 0.8F, 1, 1}, {0, 0, 0.3F, 0.2F}}, 0.1F},
                                        {{120, 700}, {{0.1F, 0.4F, 0.9F, 0.6F}}, 0.7F}};
  return all;
}

double coverage(const CropWindow& window, const Box& box, ImageSize image) {
  const int y0 = static_cast<int>(box.ymin * static_cast<float>(image.height));
  const int x0 = static_cast<int>(box.xmin * static_cast<float>(image.width));
  const int y1 = static_cast<int>(box.ymax * static_cast<float>(image.height));
  const int x1 = static_cast<int>(box.xmax * static_cast<float>(image.width));
  const int height = std::max(std::min(window.y + window.height, y1) - std::max(window.y, y0), 0);
  const int width = std::max(std::min(window.x + window.width, x1) - std::max(window.x, x0), 0);
  return static_cast<double>(height) * width / ((y1 - y0) * (x1 - x0));
}

// Each statistic's values, sorted.
std::map<std::string, std::vector<double>> sample(const std::string& sampler, const Case& c) {
  CropOptions options{.min_object_covered = c.covered};
  if (sampler == "torchvision") {
    options = {.method = CropMethod::kResizedCrop,
               .min_aspect_ratio = 3.0F / 4,
               .max_aspect_ratio = 4.0F / 3,
               .min_area = 0.08F,
               .max_attempts = 10};
  }
  std::map<std::string, std::vector<double>> values;
  core::RandomStream random(7, "crop_distribution");
  for (int i = 0; i < kDraws; ++i) {
    const CropWindow window = sample_crop(c.image, c.boxes, options, random);
    values["area"].push_back(static_cast<double>(window.height) * window.width / (c.image.height * c.image.width));
    values["aspect"].push_back(static_cast<double>(window.width) / window.height);
    values["top"].push_back(static_cast<double>(window.y) / c.image.height);
    values["left"].push_back(static_cast<double>(window.x) / c.image.width);
    double covered = 0;
    for (const Box& box : c.boxes) covered = std::max(covered, coverage(window, box, c.image));
    values["covered"].push_back(covered);
  }
  for (auto& [name, list] : values) std::sort(list.begin(), list.end());
  return values;
}

TEST(CropDistribution, IsTensorFlowsAndTorchvisions) {
  // At this distance one pair of 1,000 that are alike is found to differ; the draws are always the same.
  const double bound = 1.95 * std::sqrt(2.0 / kDraws);
  std::istringstream lines(core::local_file_system().read_file(
      core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/data/testdata/crop_distribution.txt")));
  std::map<std::pair<std::string, size_t>, std::map<std::string, std::vector<double>>> ours;
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    std::istringstream words(line);
    std::string sampler, statistic;
    size_t number = 0;
    words >> sampler >> number >> statistic;
    auto& values = ours[{sampler, number}];
    if (values.empty()) values = sample(sampler, cases().at(number));
    const std::vector<double>& sorted = values.at(statistic);
    double point = 0, share = 0, distance = 0;
    while (words >> point >> share) {
      const auto at = std::upper_bound(sorted.begin(), sorted.end(), point + 1e-7);
      distance = std::max(distance, std::abs(static_cast<double>(at - sorted.begin()) / kDraws - share));
    }
    EXPECT_LT(distance, bound) << sampler << " case " << number << " " << statistic;
  }
  EXPECT_EQ(count, 38);
}

}  // namespace
}  // namespace trainyard::data::crop_distribution_test
