#include "trainyard/data/datasets/sample_labels.h"

#include <algorithm>
#include <numeric>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/threads/parallel.h"
#include "trainyard/core/threads/thread.h"

namespace trainyard::data {

std::vector<int64_t> sample_labels(const Dataset& dataset) {
  if (dataset.has_label_sets()) {
    throw core::Error(core::ErrorCode::kUnsupported, {.problem = "classes are counted where each image has one label",
                                                      .actual = "several labels an image",
                                                      .remedy = "leave --class_weights and --balanced_sampling out"});
  }
  std::vector<int64_t> labels(static_cast<size_t>(dataset.size()), -1);
  if (dataset.size() > 0 && dataset.known_label(0)) {
    for (int64_t i = 0; i < dataset.size(); ++i) labels[i] = dataset.known_label(i).value_or(-1);
    return labels;
  }
  core::log::info("reading all {} records once, to count the images of each class", dataset.size());
  constexpr size_t kChunk = 256;
  core::for_each_parallel((labels.size() + kChunk - 1) / kChunk, core::available_cores(), [&](size_t chunk) {
    for (size_t i = chunk * kChunk; i < std::min(labels.size(), (chunk + 1) * kChunk); ++i) {
      core::Result<Record> record = dataset.read(static_cast<int64_t>(i));
      if (record.ok()) labels[i] = record.value().label;
    }
  });
  return labels;
}

std::vector<int64_t> class_counts(const std::vector<int64_t>& labels, int64_t offset, int64_t classes) {
  std::vector<int64_t> counts(static_cast<size_t>(classes));
  for (const int64_t label : labels) {
    const int64_t output = label + offset;
    if (label >= 0 && output >= 0 && output < classes) ++counts[output];
  }
  return counts;
}

std::vector<double> balanced_class_weights(const std::vector<int64_t>& counts) {
  const auto samples = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  const auto classes =
      static_cast<double>(std::count_if(counts.begin(), counts.end(), [](int64_t count) { return count > 0; }));
  std::vector<double> weights(counts.size());
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] > 0) weights[c] = samples / (classes * static_cast<double>(counts[c]));
  }
  return weights;
}

}  // namespace trainyard::data
