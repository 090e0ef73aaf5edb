// The boxes of COCO's evaluation, prepared for matching: annotated boxes by image and category, areas as bits, and for
// each detection the annotated boxes that it may match.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainyard/data/detection/coco_annotations.h"

namespace trainyard::train {

inline constexpr int kCocoThresholds = 10;  // of the intersection over union: 0.50, 0.55, ..., 0.95
inline constexpr int kCocoAreas = 4;        // all, small, medium, large
inline constexpr uint32_t kCocoAllAreas = (1U << kCocoAreas) - 1;
inline constexpr uint32_t kCocoAllThresholds = (1U << kCocoThresholds) - 1;

// Returns an IoU threshold, with the bits of numpy.linspace(0.5, 0.95, 10).
[[nodiscard]] double coco_iou_threshold(int index);

// Maps ids to the place of the id in the ascending list of all. Ids that appear twice have one place.
class CocoIds {
 public:
  explicit CocoIds(std::vector<int64_t> ids);
  size_t size() const { return ids_.size(); }
  // Returns the place of an id, or -1.
  int32_t find(int64_t id) const;

 private:
  std::vector<int64_t> ids_;
  std::vector<int32_t> table_;  // place by id - ids_[0], where that takes little memory
};

// An annotated box.
struct CocoTruth {
  double x = 0, y = 0, width = 0, height = 0;
  int32_t image = 0, category = 0;  // places in their lists
  uint32_t ignored = 0;             // bit a: not counted in area a
  bool crowd = false;
  bool zero_id = false;               // pycocotools takes a detection that matches the box of id 0 as unmatched
  uint16_t matched[kCocoAreas] = {};  // bit t: a detection has matched it at threshold t
};

// An annotated box that a detection may match: their IoU is not below the lowest threshold.
struct CocoCandidate {
  double iou = 0;
  uint32_t truth = 0;    // place in CocoTruths::all
  uint32_t reached = 0;  // bit t: the IoU is not below threshold t
};

struct CocoTruths {
  CocoIds images, categories;
  std::vector<CocoTruth> all{};    // by image, then category, then their order in the file
  std::vector<uint32_t> starts{};  // of each image in `all`, and the end
  std::vector<int64_t> counted{};  // [categories, kCocoAreas] boxes that are not ignored

  // Throws kInvalidArgument for numbers that are not finite and for two boxes of one id.
  explicit CocoTruths(const data::CocoAnnotations& annotations);
};

// A detection, ready to be sorted.
struct CocoEntry {
  uint64_t order = 0;  // ascending where the score descends
  uint32_t image = 0;
  // Below kCocoFirstRecord: no candidates, and bit a is set where the detection's area is in area a. Else the place of
  // its record, counted from kCocoFirstRecord.
  uint32_t link = 0;
};
inline constexpr uint32_t kCocoFirstRecord = 1U << kCocoAreas;

// A detection with candidates.
struct CocoRecord {
  size_t first = 0;  // of its candidates
  uint32_t count = 0;
  uint32_t areas = 0;  // bit a: its area is in area a
};

// Consecutive detections of the list.
struct CocoChunk {
  std::vector<CocoEntry> entries{};
  std::vector<int32_t> categories{};  // of each entry
  std::vector<CocoRecord> records{};
  std::vector<CocoCandidate> candidates{};
};

// Returns the detections [first, end) that have an annotated category. Throws kInvalidArgument for an unknown image and
// for numbers that are not finite.
[[nodiscard]] CocoChunk prepare_coco_chunk(const CocoTruths& truths, std::span<const data::CocoDetection> detections,
                                           size_t first, size_t end);

}  // namespace trainyard::train
