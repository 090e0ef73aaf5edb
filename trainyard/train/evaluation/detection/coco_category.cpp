#include "trainyard/train/evaluation/detection/coco_category.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace trainyard::train {
namespace {

constexpr std::array<uint32_t, kCocoMaxDetections> kMaxDetections = {1, 10, 100};

// A stable counting sort by 11 bits of each entry. Returns false, and leaves `to` as it is, where all have the same.
template <class Digit>
bool sort_by_digit(std::span<const CocoEntry> from, std::span<CocoEntry> to, const Digit& digit) {
  std::array<uint32_t, 2048> places{};
  for (const CocoEntry& entry : from) places[digit(entry)]++;
  if (places[digit(from.front())] == from.size()) return false;
  uint32_t sum = 0;
  for (uint32_t& place : places) {
    const uint32_t count = place;
    place = sum;
    sum += count;
  }
  for (const CocoEntry& entry : from) to[places[digit(entry)]++] = entry;
  return true;
}

}  // namespace

CocoCategoryEvaluator::CocoCategoryEvaluator(CocoTruths& truths, std::span<const CocoRecord> records,
                                             std::span<const CocoCandidate> candidates)
    : truths_(truths), records_(records), candidates_(candidates) {}

void CocoCategoryEvaluator::sort(std::span<CocoEntry> entries) {
  constexpr size_t kFew = 1024;
  const auto by_image = [](const CocoEntry& a, const CocoEntry& b) { return a.image < b.image; };
  if (entries.size() < kFew) {
    std::stable_sort(entries.begin(), entries.end(), [](const CocoEntry& a, const CocoEntry& b) {
      return a.order != b.order ? a.order < b.order : a.image < b.image;
    });
    return;
  }
  if (!std::is_sorted(entries.begin(), entries.end(), by_image))
    std::stable_sort(entries.begin(), entries.end(), by_image);
  sorted_.resize(entries.size());
  std::span<CocoEntry> from = entries, to = sorted_;
  for (int shift = 0; shift < 64; shift += 11)
    if (sort_by_digit(from, to, [&](const CocoEntry& entry) { return entry.order >> shift & 2047; }))
      std::swap(from, to);
  if (from.data() != entries.data()) std::copy(from.begin(), from.end(), entries.begin());
}

CocoCategoryResult CocoCategoryEvaluator::evaluate(int32_t category, std::span<CocoEntry> entries) {
  CocoCategoryResult result;
  const std::span<const int64_t> boxes =
      std::span(truths_.counted).subspan(static_cast<size_t>(category) * kCocoAreas, kCocoAreas);
  for (int a = 0; a < kCocoAreas; a++) result.has_boxes[a] = boxes[a] > 0;
  if (std::none_of(boxes.begin(), boxes.end(), [](int64_t count) { return count > 0; })) return result;

  in_area_ = {};
  difference_ = {};
  positives_of_few_ = {};
  for (auto& area : positives_)
    for (auto& positives : area) positives.clear();
  ranks_.assign(truths_.images.size(), 0);

  sort(entries);
  for (const CocoEntry& entry : entries) {
    const uint32_t rank = ranks_[entry.image]++;
    if (rank >= kMaxDetections.back()) continue;
    if (entry.link < kCocoFirstRecord) {
      for (int a = 0; a < kCocoAreas; a++) in_area_[a] += entry.link >> a & 1;
    } else {
      match(records_[entry.link - kCocoFirstRecord], rank);
    }
  }

  for (int a = 0; a < kCocoAreas; a++)
    if (result.has_boxes[a]) sample(a, boxes[a], result);
  if (result.has_boxes[0])
    for (int m = 0; m < kCocoMaxDetections - 1; m++)
      for (int t = 0; t < kCocoThresholds; t++)
        result.recall_of_few[m][t] = static_cast<double>(positives_of_few_[m][t]) / static_cast<double>(boxes[0]);
  return result;
}

void CocoCategoryEvaluator::match(const CocoRecord& record, uint32_t rank) {
  const std::span<const CocoCandidate> candidates = candidates_.subspan(record.first, record.count);
  for (int a = 0; a < kCocoAreas; a++) {
    const Matches matches = match_in_area(candidates, a);
    const uint32_t inside = (record.areas >> a & 1) != 0 ? kCocoAllThresholds : 0;
    const uint32_t matched = matches.any & ~matches.zero_id;
    // Without a match the detection's own area decides; with the box of id 0, either ignores it.
    const uint32_t counted = ~matches.ignored & (matched | inside) & kCocoAllThresholds;
    const uint32_t positive = matched & counted;
    in_area_[a] += record.areas >> a & 1;
    for (uint32_t bits = counted ^ inside; bits != 0; bits &= bits - 1)
      difference_[a][std::countr_zero(bits)] += inside != 0 ? -1 : 1;
    for (uint32_t bits = positive; bits != 0; bits &= bits - 1) {
      const int t = std::countr_zero(bits);
      positives_[a][t].push_back(in_area_[a] + difference_[a][t]);
      if (a > 0) continue;
      for (int m = 0; m < kCocoMaxDetections - 1; m++)
        if (rank < kMaxDetections[m]) positives_of_few_[m][t]++;
    }
  }
}

CocoCategoryEvaluator::Matches CocoCategoryEvaluator::match_in_area(std::span<const CocoCandidate> candidates,
                                                                    int area) {
  Matches matches;
  if (candidates.size() == 1) {  // as below, for all thresholds at the same time
    const CocoCandidate& candidate = candidates.front();
    CocoTruth& truth = truths_.all[candidate.truth];
    matches.any = candidate.reached & (truth.crowd ? kCocoAllThresholds : ~static_cast<uint32_t>(truth.matched[area]));
    if ((truth.ignored >> area & 1) != 0) matches.ignored = matches.any;
    if (truth.zero_id) matches.zero_id = matches.any;
    truth.matched[area] = static_cast<uint16_t>(truth.matched[area] | matches.any);
    return matches;
  }
  for (int t = 0; t < kCocoThresholds; t++) {
    CocoTruth* best = nullptr;
    double best_iou = coco_iou_threshold(t);
    // A box that counts is preferred to all that are ignored.
    for (uint32_t ignored = 0; ignored < 2 && best == nullptr; ignored++)
      for (const CocoCandidate& candidate : candidates) {
        CocoTruth& truth = truths_.all[candidate.truth];
        if ((truth.ignored >> area & 1) != ignored || ((truth.matched[area] >> t & 1) != 0 && !truth.crowd)) continue;
        if (candidate.iou < best_iou) continue;  // of equal ones the last
        best_iou = candidate.iou;
        best = &truth;
      }
    if (best == nullptr) continue;
    matches.any |= 1U << t;
    matches.ignored |= (best->ignored >> area & 1) << t;
    if (best->zero_id) matches.zero_id |= 1U << t;
    best->matched[area] = static_cast<uint16_t>(best->matched[area] | 1U << t);
  }
  return matches;
}

void CocoCategoryEvaluator::sample(int area, int64_t boxes, CocoCategoryResult& result) const {
  constexpr double kSmallest = std::numeric_limits<double>::epsilon();  // numpy.spacing(1)
  std::vector<double> precision;
  for (int t = 0; t < kCocoThresholds; t++) {
    const std::vector<int64_t>& positives = positives_[area][t];
    const auto count = static_cast<int64_t>(positives.size());
    // Between two true positives precision only falls, so their precisions make the whole envelope.
    precision.resize(positives.size());
    for (int64_t i = count - 1; i >= 0; i--) {
      precision[i] = static_cast<double>(i + 1) / (static_cast<double>(positives[i]) + kSmallest);
      if (i + 1 < count) precision[i] = std::max(precision[i], precision[i + 1]);
    }
    int64_t i = 0;
    for (int r = 0; r < kCocoRecalls; r++) {
      const double recall = r == kCocoRecalls - 1 ? 1.0 : r * 0.01;
      while (i < count && static_cast<double>(i + 1) / static_cast<double>(boxes) < recall) i++;
      result.precision[area][t][r] = i < count ? precision[i] : 0;
    }
    result.recall[area][t] = static_cast<double>(count) / static_cast<double>(boxes);
  }
}

}  // namespace trainyard::train
