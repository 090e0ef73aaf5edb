// Counts what a classifier predicts in an evaluation: for which class it takes which, how sure it is, and where it is
// most wrong. From these follow the confusion matrix, precision and recall of each class, top-k accuracies and the
// calibration error.
//
//   PredictionCounts counts({.classes = 1000, .top_k = {1, 5, 10}});
//   for (batch : set) counts.add(logits, labels, sample_indices);
//   counts.add_other_ranks(group);               // with several ranks
//   counts.calibration_error();
//
// All that is summed are integers, confidences in units of 2^-32, so the result has the same bits whatever the number
// of ranks, threads and batches, as long as the logits have.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::train {

struct PredictionCountsOptions {
  static constexpr int64_t kMostBins = 1000, kMostWrong = 1000;

  int64_t classes = 1;  // outputs of the model
  std::vector<int64_t> top_k{};
  int64_t calibration_bins = 15;  // of equal width, 1 to kMostBins
  // With more classes no confusion matrix is counted: it takes 8 bytes for each pair of classes. ImageNet's 1,000 may
  // have a background class.
  int64_t most_confused_classes = 1024;
  int64_t most_wrong = 16;  // wrong predictions that are kept, 0 to kMostWrong
  void validate() const;    // throws kInvalidArgument
};

// Images of one class. A ratio whose divisor is 0 is 0, as with scikit-learn's zero_division=0.
struct ClassPredictions {
  int64_t images = 0;     // whose label is the class
  int64_t predicted = 0;  // for which the class was predicted
  int64_t right = 0;      // both

  [[nodiscard]] double precision() const;  // right / predicted
  [[nodiscard]] double recall() const;     // right / images
  [[nodiscard]] double f1() const;         // 2 right / (predicted + images), their harmonic mean
};

// Predictions of a confidence in (i / bins, (i + 1) / bins].
struct CalibrationBin {
  int64_t images = 0;
  int64_t right = 0;
  int64_t confidence_sum = 0;  // in units of 2^-32

  [[nodiscard]] double accuracy() const;    // 0 without images
  [[nodiscard]] double confidence() const;  // mean; 0 without images
};

struct WrongPrediction {
  int64_t sample = 0;  // index in the data set
  int64_t label = 0, predicted = 0;
  double confidence = 0;  // softmax of the logit of `predicted`
};

// One thread at a time.
class PredictionCounts {
 public:
  explicit PredictionCounts(PredictionCountsOptions options);

  void clear();
  // Adds a batch. logits is [N, classes] of any float type, labels [N] int64, both on any device. The predicted class
  // is that of the largest logit; where several are the largest it is the label, when that is among them, and else the
  // first: so the diagonal of the confusion matrix is what top-1 accuracy counts (nn::top_k_correct()). An image with a
  // logit that is not finite predicts nothing. `sample_indices` is [N], or empty: then no wrong predictions are kept.
  // Throws kInvalidArgument for other shapes and for labels out of range.
  void add(const at::Tensor& logits, const at::Tensor& labels, std::span<const int64_t> sample_indices = {});
  // Adds the counts of the other ranks, which have the same options. Collective. A rank may have no images.
  void add_other_ranks(parallel::ProcessGroup& ranks);

  const PredictionCountsOptions& options() const { return options_; }
  int64_t images() const { return images_; }
  int64_t not_finite() const { return not_finite_; }  // images that predict nothing
  int64_t right() const;
  const std::vector<ClassPredictions>& classes() const { return classes_; }
  // Returns whether the confusion matrix is counted.
  bool has_confusion() const { return !confusion_.empty(); }
  // Returns for how many images of class `label` class `predicted` was predicted. Needs has_confusion().
  int64_t confused(int64_t label, int64_t predicted) const;
  // Returns "top_<k>_accuracy" of each k, as a fraction of the images; 0 without images.
  [[nodiscard]] std::vector<std::pair<std::string, double>> top_k_accuracies() const;
  const std::vector<CalibrationBin>& calibration() const { return calibration_; }
  // Returns the expected calibration error: the mean, over the images, of the distance between accuracy and mean
  // confidence of their bin. Guo, Pleiss, Sun, Weinberger, "On calibration of modern neural networks", 2017, equation
  // 3. Images that predict nothing do not count; 0 without images.
  [[nodiscard]] double calibration_error() const;
  // Returns the wrong predictions of highest confidence, from the most confident on, and those of equal confidence in
  // the order of the data set. Each image is there once.
  [[nodiscard]] std::vector<WrongPrediction> most_wrong() const;

 private:
  void add_row(const float* logits, int64_t label, int64_t sample);
  void keep(const WrongPrediction& wrong);
  std::string text_of_sums() const;
  std::string text_of_confusion(int64_t first_row, int64_t end_row) const;
  void add_sums(std::string_view text);
  void add_confusion(std::string_view text);

  PredictionCountsOptions options_;
  int64_t images_ = 0, not_finite_ = 0;
  std::vector<ClassPredictions> classes_;
  std::vector<int64_t> confusion_;  // [classes, classes]: label, predicted
  std::vector<int64_t> top_k_right_;
  std::vector<CalibrationBin> calibration_;
  std::vector<WrongPrediction> wrong_;  // a heap whose front is the least wrong
};

}  // namespace trainyard::train
