#include "trainyard/train/evaluation/detection/coco_metric.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/parallel.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/detection/coco_annotations.h"
#include "trainyard/train/evaluation/detection/coco_category.h"

namespace trainyard::train {
namespace {

// The sum in the order of numpy.add.reduce: eight partial sums of up to 128 numbers, halves of more.
double pairwise_sum(std::span<const double> values) {
  constexpr size_t kBlock = 128, kSums = 8;
  const size_t count = values.size();
  if (count < kSums) return std::accumulate(values.begin(), values.end(), 0.0);
  if (count > kBlock) {
    const size_t half = count / 2 - count / 2 % kSums;
    return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
  }
  std::array<double, kSums> sums{};
  std::copy_n(values.begin(), kSums, sums.begin());
  size_t i = kSums;
  for (; i < count - count % kSums; i += kSums)
    for (size_t j = 0; j < kSums; j++) sums[j] += values[i + j];
  double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  for (; i < count; i++) sum += values[i];
  return sum;
}

double mean_or_none(const std::vector<double>& values) {
  return values.empty() ? -1 : pairwise_sum(values) / static_cast<double>(values.size());
}

// All detections by category.
struct Detections {
  std::vector<CocoEntry> entries{};
  std::vector<size_t> starts{};  // of each category in `entries`, and the end
  std::vector<CocoRecord> records{};
  std::vector<CocoCandidate> candidates{};
};

// Puts the chunks' detections in the order of the categories; those of a category stay in their order.
Detections by_category(std::vector<CocoChunk>& chunks, size_t categories, int threads) {
  Detections all;
  std::vector<std::vector<size_t>> places(chunks.size(), std::vector<size_t>(categories));
  core::for_each_parallel(chunks.size(), threads, [&](size_t c) {
    for (const int32_t category : chunks[c].categories) places[c][category]++;
  });
  all.starts.resize(categories + 1);
  size_t sum = 0;
  for (size_t category = 0; category < categories; category++) {
    all.starts[category] = sum;
    for (auto& place : places) sum += std::exchange(place[category], sum);
  }
  all.starts[categories] = sum;

  std::vector<size_t> records(chunks.size() + 1), candidates(chunks.size() + 1);
  for (size_t c = 0; c < chunks.size(); c++) {
    records[c + 1] = records[c] + chunks[c].records.size();
    candidates[c + 1] = candidates[c] + chunks[c].candidates.size();
  }
  all.entries.resize(sum);
  all.records.resize(records.back());
  all.candidates.resize(candidates.back());
  core::for_each_parallel(chunks.size(), threads, [&](size_t c) {
    CocoChunk chunk = std::move(chunks[c]);
    for (CocoRecord& record : chunk.records) record.first += candidates[c];
    std::copy(chunk.records.begin(), chunk.records.end(), all.records.begin() + static_cast<ptrdiff_t>(records[c]));
    std::copy(chunk.candidates.begin(), chunk.candidates.end(),
              all.candidates.begin() + static_cast<ptrdiff_t>(candidates[c]));
    for (size_t i = 0; i < chunk.entries.size(); i++) {
      CocoEntry entry = chunk.entries[i];
      if (entry.link >= kCocoFirstRecord) entry.link += static_cast<uint32_t>(records[c]);
      all.entries[places[c][chunk.categories[i]]++] = entry;
    }
  });
  return all;
}

using Results = std::vector<CocoCategoryResult>;

// The mean over thresholds [first, end), recalls and categories, in this order.
double mean_precision(const Results& results, int area, int first = 0, int end = kCocoThresholds) {
  std::vector<double> values;
  values.reserve(results.size() * kCocoRecalls * static_cast<size_t>(end - first));
  for (int t = first; t < end; t++)
    for (int r = 0; r < kCocoRecalls; r++)
      for (const CocoCategoryResult& result : results)
        if (result.has_boxes[area]) values.push_back(result.precision[area][t][r]);
  return mean_or_none(values);
}

template <class RecallOf>
double mean_recall(const Results& results, int area, const RecallOf& recall) {
  std::vector<double> values;
  for (int t = 0; t < kCocoThresholds; t++)
    for (const CocoCategoryResult& result : results)
      if (result.has_boxes[area]) values.push_back(recall(result)[t]);
  return mean_or_none(values);
}

CocoMetric summarize(const Results& results) {
  constexpr int kIou75 = 5;
  CocoMetric metric;
  metric.values[0] = mean_precision(results, 0);
  metric.values[1] = mean_precision(results, 0, 0, 1);
  metric.values[2] = mean_precision(results, 0, kIou75, kIou75 + 1);
  for (int area = 1; area < kCocoAreas; area++) metric.values[2 + area] = mean_precision(results, area);
  for (int few = 0; few < kCocoMaxDetections - 1; few++)
    metric.values[6 + few] = mean_recall(results, 0, [&](const auto& result) { return result.recall_of_few[few]; });
  for (int area = 0; area < kCocoAreas; area++)
    metric.values[8 + area] = mean_recall(results, area, [&](const auto& result) { return result.recall[area]; });
  return metric;
}

}  // namespace

CocoMetric coco_metric(const data::CocoAnnotations& annotations, std::span<const data::CocoDetection> detections,
                       const CocoMetricOptions& options) {
  if (options.threads < 0)
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      fmt::format("COCO's metric cannot use {} threads", options.threads));
  if (detections.size() >= std::numeric_limits<int32_t>::max())
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      fmt::format("COCO's metric takes less than 2^31 detections, got {}", detections.size()));
  constexpr size_t kFew = 10'000;  // not worth the start of threads
  const int asked = options.threads > 0 ? options.threads : core::available_cores();
  const int threads = detections.size() < kFew ? 1 : asked;

  CocoTruths truths(annotations);
  std::vector<CocoChunk> chunks(static_cast<size_t>(threads));
  core::for_each_parallel(chunks.size(), threads, [&](size_t c) {
    const size_t count = detections.size(), all = chunks.size();
    chunks[c] = prepare_coco_chunk(truths, detections, count * c / all, count * (c + 1) / all);
  });
  Detections sorted = by_category(chunks, truths.categories.size(), threads);

  // The categories of most detections come first, so that all threads end at about the same time.
  const auto size_of = [&](size_t category) { return sorted.starts[category + 1] - sorted.starts[category]; };
  std::vector<size_t> order(truths.categories.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return size_of(a) > size_of(b); });
  Results results(truths.categories.size());
  std::vector<CocoCategoryEvaluator> evaluators(static_cast<size_t>(threads),
                                                CocoCategoryEvaluator(truths, sorted.records, sorted.candidates));
  std::atomic<size_t> next{0};
  core::for_each_parallel(evaluators.size(), threads, [&](size_t thread) {
    for (size_t i = next++; i < order.size(); i = next++)
      results[order[i]] =
          evaluators[thread].evaluate(static_cast<int32_t>(order[i]),
                                      std::span(sorted.entries).subspan(sorted.starts[order[i]], size_of(order[i])));
  });
  return summarize(results);
}

std::string coco_metric_lines(const CocoMetric& metric) {
  struct Row {
    const char *iou, *area;
    int detections;
  };
  static constexpr std::array<Row, CocoMetric::kValues> kRows = {{{"0.50:0.95", "all", 100},
                                                                  {"0.50", "all", 100},
                                                                  {"0.75", "all", 100},
                                                                  {"0.50:0.95", "small", 100},
                                                                  {"0.50:0.95", "medium", 100},
                                                                  {"0.50:0.95", "large", 100},
                                                                  {"0.50:0.95", "all", 1},
                                                                  {"0.50:0.95", "all", 10},
                                                                  {"0.50:0.95", "all", 100},
                                                                  {"0.50:0.95", "small", 100},
                                                                  {"0.50:0.95", "medium", 100},
                                                                  {"0.50:0.95", "large", 100}}};
  constexpr size_t kPrecisions = 6;
  std::string lines;
  for (size_t i = 0; i < kRows.size(); i++)
    lines += fmt::format(" {:<18} {} @[ IoU={:<9} | area={:>6} | maxDets={:>3} ] = {:.3f}\n",
                         i < kPrecisions ? "Average Precision" : "Average Recall", i < kPrecisions ? "(AP)" : "(AR)",
                         kRows[i].iou, kRows[i].area, kRows[i].detections, metric.values[i]);
  return lines;
}

}  // namespace trainyard::train
