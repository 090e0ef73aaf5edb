#include "trainyard/train/evaluation/detection/coco_boxes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::train {
namespace {

struct AreaRange {
  double least, most;
};
constexpr std::array<AreaRange, kCocoAreas> kAreas = {
    {{0, 1e10}, {0, 32.0 * 32}, {32.0 * 32, 96.0 * 96}, {96.0 * 96, 1e10}}};

std::array<double, kCocoThresholds> make_thresholds() {
  std::array<double, kCocoThresholds> values{};
  for (int i = 0; i < kCocoThresholds; i++) values[i] = coco_iou_threshold(i);
  return values;
}

// An area at the border of two ranges is in both.
uint32_t areas_of(double area) {
  uint32_t bits = 0;
  for (int a = 0; a < kCocoAreas; a++)
    bits |= static_cast<uint32_t>(area >= kAreas[a].least && area <= kAreas[a].most) << a;
  return bits;
}

// In the order of operations of pycocotools' bbIou(). The comparisons are written so that a NaN, which only an overflow
// makes, takes the same way as there.
double intersection_over_union(const data::CocoDetection& d, const CocoTruth& g) {
  const double width = std::min(d.width + d.x, g.width + g.x) - std::max(d.x, g.x);
  if (width <= 0) return 0;
  const double height = std::min(d.height + d.y, g.height + g.y) - std::max(d.y, g.y);
  if (height <= 0) return 0;
  const double area = d.width * d.height, intersection = width * height;
  return intersection / (g.crowd ? area : area + g.width * g.height - intersection);
}

uint64_t descending_order(double score) {
  const auto bits = std::bit_cast<uint64_t>(score + 0.0);  // -0 equals 0
  constexpr uint64_t kSign = uint64_t{1} << 63;
  return (bits & kSign) != 0 ? bits : ~(bits | kSign);
}

void check_detection(const data::CocoDetection& d, size_t index) {
  // A sum of finite numbers times 0 is 0, and NaN with one that is not finite.
  if ((d.x + d.y + d.width + d.height + d.score) * 0 == 0) return;
  if (std::isfinite(d.x) && std::isfinite(d.y) && std::isfinite(d.width) && std::isfinite(d.height) &&
      std::isfinite(d.score))
    return;
  throw core::Error(
      core::ErrorCode::kInvalidArgument,
      fmt::format("detection {} of image {} has a box or a score that is not finite: [{}, {}, {}, {}], {}", index,
                  d.image_id, d.x, d.y, d.width, d.height, d.score));
}

void check_boxes(const data::CocoAnnotations& annotations) {
  for (const data::CocoBox& box : annotations.boxes)
    if (!std::isfinite(box.x) || !std::isfinite(box.y) || !std::isfinite(box.width) || !std::isfinite(box.height) ||
        !std::isfinite(box.area))
      throw core::Error(
          core::ErrorCode::kInvalidArgument,
          fmt::format("the annotated box of id {} in image {} has a number that is not finite: [{}, {}, {}, {}], "
                      "area {}",
                      box.id, box.image_id, box.x, box.y, box.width, box.height, box.area));
  std::vector<int64_t> ids(annotations.boxes.size());
  std::transform(annotations.boxes.begin(), annotations.boxes.end(), ids.begin(),
                 [](const auto& box) { return box.id; });
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice != ids.end())
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      fmt::format("two annotated boxes have the id {}: give each box an id of its own", *twice));
}

template <class Items>
std::vector<int64_t> ids_of(const Items& items) {
  std::vector<int64_t> ids;
  ids.reserve(items.size());
  for (const auto& item : items) ids.push_back(item.id);
  return ids;
}

}  // namespace

double coco_iou_threshold(int index) {
  return index == kCocoThresholds - 1 ? 0.95 : index * ((0.95 - 0.5) / (kCocoThresholds - 1)) + 0.5;
}

CocoIds::CocoIds(std::vector<int64_t> ids) : ids_(std::move(ids)) {
  std::sort(ids_.begin(), ids_.end());
  ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
  if (ids_.empty()) return;
  constexpr uint64_t kMostTable = 1 << 22;
  const uint64_t range = static_cast<uint64_t>(ids_.back()) - static_cast<uint64_t>(ids_.front());
  if (range >= kMostTable) return;
  table_.assign(range + 1, -1);
  for (size_t i = 0; i < ids_.size(); i++)
    table_[static_cast<size_t>(ids_[i] - ids_.front())] = static_cast<int32_t>(i);
}

int32_t CocoIds::find(int64_t id) const {
  if (ids_.empty() || id < ids_.front() || id > ids_.back()) return -1;
  if (!table_.empty()) return table_[static_cast<size_t>(id - ids_.front())];
  const auto place = std::lower_bound(ids_.begin(), ids_.end(), id);
  return *place == id ? static_cast<int32_t>(place - ids_.begin()) : -1;
}

CocoTruths::CocoTruths(const data::CocoAnnotations& annotations)
    : images(ids_of(annotations.images)), categories(ids_of(annotations.categories)) {
  check_boxes(annotations);
  counted.assign(categories.size() * kCocoAreas, 0);
  for (const data::CocoBox& box : annotations.boxes) {
    const int32_t image = images.find(box.image_id), category = categories.find(box.category_id);
    if (image < 0 || category < 0) continue;
    CocoTruth truth{
        .x = box.x, .y = box.y, .width = box.width, .height = box.height, .image = image, .category = category};
    truth.ignored = box.crowd ? kCocoAllAreas : kCocoAllAreas & ~areas_of(box.area);
    truth.crowd = box.crowd;
    truth.zero_id = box.id == 0;
    for (int a = 0; a < kCocoAreas; a++)
      counted[static_cast<size_t>(category) * kCocoAreas + a] += 1 - (truth.ignored >> a & 1);
    all.push_back(truth);
  }
  std::stable_sort(all.begin(), all.end(), [](const CocoTruth& a, const CocoTruth& b) {
    return a.image != b.image ? a.image < b.image : a.category < b.category;
  });
  starts.assign(images.size() + 1, 0);
  for (const CocoTruth& truth : all) starts[static_cast<size_t>(truth.image) + 1]++;
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
}

CocoChunk prepare_coco_chunk(const CocoTruths& truths, std::span<const data::CocoDetection> detections, size_t first,
                             size_t end) {
  static const std::array<double, kCocoThresholds> kThresholds = make_thresholds();
  CocoChunk chunk;
  chunk.entries.reserve(end - first);
  chunk.categories.reserve(end - first);
  for (size_t i = first; i < end; i++) {
    const data::CocoDetection& d = detections[i];
    const int32_t image = truths.images.find(d.image_id), category = truths.categories.find(d.category_id);
    if (image < 0)
      throw core::Error(
          core::ErrorCode::kInvalidArgument,
          fmt::format("detection {} is of image {}, which the annotations do not list; these detections may "
                      "belong to other annotations",
                      i, d.image_id));
    check_detection(d, i);
    if (category < 0) continue;

    const size_t before = chunk.candidates.size();
    const CocoTruth* truth = truths.all.data() + truths.starts[image];
    const CocoTruth* const last = truths.all.data() + truths.starts[image + 1];
    constexpr int64_t kFewTruths = 32;
    if (last - truth > kFewTruths)
      truth = std::lower_bound(truth, last, category, [](const CocoTruth& t, int32_t c) { return t.category < c; });
    for (; truth < last && truth->category <= category; truth++) {
      if (truth->category != category) continue;
      const double iou = intersection_over_union(d, *truth);
      if (iou < kThresholds[0]) continue;
      uint32_t reached = 0;
      for (int t = 0; t < kCocoThresholds; t++) reached |= static_cast<uint32_t>(!(iou < kThresholds[t])) << t;
      chunk.candidates.push_back({iou, static_cast<uint32_t>(truth - truths.all.data()), reached});
    }
    uint32_t link = areas_of(d.width * d.height);
    if (chunk.candidates.size() > before) {
      chunk.records.push_back({before, static_cast<uint32_t>(chunk.candidates.size() - before), link});
      link = kCocoFirstRecord + static_cast<uint32_t>(chunk.records.size() - 1);
    }
    chunk.entries.push_back({descending_order(d.score), static_cast<uint32_t>(image), link});
    chunk.categories.push_back(category);
  }
  return chunk;
}

}  // namespace trainyard::train
