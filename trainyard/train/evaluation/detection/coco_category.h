// COCO's evaluation of one category: matches its detections to annotated boxes, the best score first, and samples the
// precision-recall curves.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "trainyard/train/evaluation/detection/coco_boxes.h"

namespace trainyard::train {

inline constexpr int kCocoRecalls = 101;      // recalls 0, 0.01, ..., 1 at which precision is sampled
inline constexpr int kCocoMaxDetections = 3;  // 1, 10, 100 of an image

// What a category adds to the twelve numbers.
struct CocoCategoryResult {
  std::array<bool, kCocoAreas>
      has_boxes{};  // whether a box counts in the area; the area's numbers are unused otherwise
  // At 100 detections of an image.
  std::array<std::array<std::array<double, kCocoRecalls>, kCocoThresholds>, kCocoAreas> precision{};
  std::array<std::array<double, kCocoThresholds>, kCocoAreas> recall{};
  // In the area "all" at 1 and 10 detections of an image.
  std::array<std::array<double, kCocoThresholds>, kCocoMaxDetections - 1> recall_of_few{};
};

// Memory that a thread uses for one category after the other.
class CocoCategoryEvaluator {
 public:
  // `truths`' matches of the category are changed. `records` and `candidates` are those of the entries.
  CocoCategoryEvaluator(CocoTruths& truths, std::span<const CocoRecord> records,
                        std::span<const CocoCandidate> candidates);

  // Returns the numbers of a category. Sorts `entries`, its detections in the order of the list.
  [[nodiscard]] CocoCategoryResult evaluate(int32_t category, std::span<CocoEntry> entries);

 private:
  // Orders by score, highest first; equal scores by image, then as they are.
  void sort(std::span<CocoEntry> entries);
  void match(const CocoRecord& record, uint32_t rank);
  // Matches one detection in an area. Returns by threshold: bit t of the first, a match; of the second, one with an
  // ignored box; of the third, one with the box of id 0.
  struct Matches {
    uint32_t any = 0, ignored = 0, zero_id = 0;
  };
  Matches match_in_area(std::span<const CocoCandidate> candidates, int area);
  void sample(int area, int64_t boxes, CocoCategoryResult& result) const;

  CocoTruths& truths_;
  std::span<const CocoRecord> records_;
  std::span<const CocoCandidate> candidates_;
  std::vector<uint32_t> ranks_;  // detections of each image so far
  std::vector<CocoEntry> sorted_;
  std::array<int64_t, kCocoAreas> in_area_{};  // detections so far whose area is in the area
  // By how much the number of counted detections differs from in_area_.
  std::array<std::array<int64_t, kCocoThresholds>, kCocoAreas> difference_{};
  // Counted detections up to each true positive, itself included.
  std::array<std::array<std::vector<int64_t>, kCocoThresholds>, kCocoAreas> positives_{};
  std::array<std::array<int64_t, kCocoThresholds>, kCocoMaxDetections - 1> positives_of_few_{};
};

}  // namespace trainyard::train
