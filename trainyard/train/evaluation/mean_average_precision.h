// The metric of images with several labels.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainyard/train/evaluation/metrics.h"

namespace trainyard::train {

// "mean_average_precision": the mean over the classes of the average precision, samples of equal score together, as in
// scikit-learn's average_precision_score with average="macro". Outputs are scores or logits [N, classes], labels [N,
// classes] of a float type, where above 0.5 is positive. As there, a class without a positive sample counts with 0. NaN
// scores come last. Scores of all samples are kept, 9 bytes a class.
class MeanAveragePrecision : public Metric {
 public:
  void begin() override;
  void update(const MetricBatch& batch) override;
  void reduce(core::Communicator& ranks, at::Device device) override;
  std::vector<std::pair<std::string, double>> results() const override;

  // Returns the average precision of each class; empty before the first sample.
  [[nodiscard]] std::vector<double> by_class() const;
  // Returns the samples as a text; adds those of another rank's text, for processes that exchange texts. Throws
  // kCorruptData for a text of something else.
  [[nodiscard]] std::string samples_text() const;
  void add_samples_text(std::string_view text);

 private:
  int64_t classes_ = 0;
  std::vector<double> scores_;     // [N, classes]
  std::vector<uint8_t> positive_;  // [N, classes]
};

}  // namespace trainyard::train
