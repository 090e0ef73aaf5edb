#include "trainyard/data/detection/ssd_crop.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace trainyard::data {
namespace {

constexpr std::array<float, 6> kSmallestOverlaps = {0, 0.1F, 0.3F, 0.5F, 0.7F, 0.9F};
constexpr float kWholeProbability = 1.0F / 7;
constexpr int kParts = 50;           // that are drawn for a smallest overlap
constexpr int kMostPasses = 10'000;  // the original has no end; the chance of one pass more is below 10^-600
constexpr float kShortestSide = 0.3F;

float overlap(const Box& a, const Box& b) {
  const float height = std::max(std::min(a.ymax, b.ymax) - std::max(a.ymin, b.ymin), 0.0F);
  const float width = std::max(std::min(a.xmax, b.xmax) - std::max(a.xmin, b.xmin), 0.0F);
  const float both = height * width;
  return both / ((a.ymax - a.ymin) * (a.xmax - a.xmin) + (b.ymax - b.ymin) * (b.xmax - b.xmin) - both);
}

bool holds_centre(const Box& part, const Box& box) {
  const float y = 0.5F * (box.ymin + box.ymax), x = 0.5F * (box.xmin + box.xmax);
  return y > part.ymin && y < part.ymax && x > part.xmin && x < part.xmax;
}

Box draw_part(core::RandomStream& random) {
  const float height = random.uniform(kShortestSide, 1), width = random.uniform(kShortestSide, 1);
  const float top = random.uniform(0, 1 - height), left = random.uniform(0, 1 - width);
  return {top, left, top + height, left + width};
}

bool is_valid(const Box& part, std::span<const Box> boxes, float smallest_overlap) {
  const float height = part.ymax - part.ymin, width = part.xmax - part.xmin;
  if (!(height / width < 2 && width / height < 2)) return false;
  if (std::none_of(boxes.begin(), boxes.end(), [&](const Box& box) { return holds_centre(part, box); })) return false;
  return std::all_of(boxes.begin(), boxes.end(), [&](const Box& box) { return overlap(part, box) > smallest_overlap; });
}

SsdCrop whole_image(size_t boxes) {
  SsdCrop crop;
  for (size_t i = 0; i < boxes; ++i) crop.kept.push_back(i);
  return crop;
}

}  // namespace

SsdCrop draw_ssd_crop(std::span<const Box> boxes, core::RandomStream& random) {
  for (int pass = 0; pass < kMostPasses; ++pass) {
    if (random.uniform() < kWholeProbability) return whole_image(boxes.size());
    const float smallest_overlap = kSmallestOverlaps[random.below(kSmallestOverlaps.size())];
    for (int attempt = 0; attempt < kParts; ++attempt) {
      const Box part = draw_part(random);
      if (!is_valid(part, boxes, smallest_overlap)) continue;
      SsdCrop crop{.part = part};
      for (size_t i = 0; i < boxes.size(); ++i) {
        if (holds_centre(part, boxes[i])) crop.kept.push_back(i);
      }
      return crop;
    }
  }
  return whole_image(boxes.size());
}

std::vector<Box> crop_boxes(std::span<const Box> boxes, const SsdCrop& crop) {
  const Box& part = crop.part;
  const float height = part.ymax - part.ymin, width = part.xmax - part.xmin;
  std::vector<Box> cropped;
  cropped.reserve(crop.kept.size());
  for (const size_t number : crop.kept) {
    const Box& box = boxes[number];
    cropped.push_back({.ymin = (std::max(box.ymin, part.ymin) - part.ymin) / height,
                       .xmin = (std::max(box.xmin, part.xmin) - part.xmin) / width,
                       .ymax = (std::min(box.ymax, part.ymax) - part.ymin) / height,
                       .xmax = (std::min(box.xmax, part.xmax) - part.xmin) / width});
  }
  return cropped;
}

}  // namespace trainyard::data
