// Metrics: numbers that are measured over a validation set. A metric gets the set's batches one by one, then sums over
// all ranks, so the result is that of the whole set, whatever the number of ranks and batches. Counts are int64 and
// exact, sums are double.
//
//   for (batch : set) metric.update({outputs, labels});
//   metric.reduce(communicator, device);      // with several ranks
//   metric.results();                         // {{"top_1_accuracy", 0.75}}
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/base/export.h"
#include "trainyard/core/base/tensors.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// A batch with the model's outputs. The tensors are on the model's device.
struct MetricBatch {
  core::NamedTensors outputs{};  // of the model in inference mode, the main one first: "logits" of a graph
  at::Tensor labels{};           // [N] int64, or in the form of the data

  const at::Tensor& output() const { return outputs.begin()->tensor; }
};

// One thread at a time.
class Metric {
 public:
  virtual ~Metric() = default;

  // Starts a new measurement.
  virtual void begin() = 0;
  // Adds a batch of at least one sample. Throws kInvalidArgument or kNotFound when it is not of the metric's form.
  virtual void update(const MetricBatch& batch) = 0;
  // Adds the results of the other ranks. Collective; uses tensors on `device`.
  virtual void reduce(core::Communicator& ranks, at::Device device) = 0;

  // Returns the results by name, always the same names. A result that no sample contributes to is NaN.
  [[nodiscard]] virtual std::vector<std::pair<std::string, double>> results() const = 0;
  // Returns a result that is not a number, by name, in Markdown.
  [[nodiscard]] virtual std::optional<std::pair<std::string, std::string>> text() const { return std::nullopt; }
};

// Base class of metrics that are made of sums.
class SumMetric : public Metric {
 public:
  void begin() override;
  void reduce(core::Communicator& ranks, at::Device device) override;

 protected:
  // `counts` sums of int64 and `sums` of double.
  SumMetric(int64_t counts, int64_t sums);
  int64_t count(int64_t index) const;
  double sum(int64_t index) const;
  void add_count(int64_t index, int64_t value);
  void add_sum(int64_t index, double value);
  const at::Tensor& counts() const { return counts_; }  // [counts] int64, CPU

 private:
  at::Tensor counts_, sums_;
};

// "top_<k>_accuracy": the part of samples whose label is among the k largest outputs [N, classes], as
// nn::top_k_correct() counts ties.
class TopKAccuracy : public SumMetric {
 public:
  explicit TopKAccuracy(int64_t k = 1);  // throws kInvalidArgument for k < 1
  void update(const MetricBatch& batch) override;
  std::vector<std::pair<std::string, double>> results() const override;

 private:
  int64_t k_;
};

// "loss": the mean over samples.
class MeanLoss : public SumMetric {
 public:
  // Returns the mean loss of a batch, []. Empty: softmax cross-entropy of logits [N, classes] and labels [N].
  using Loss = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& labels)>;
  explicit MeanLoss(Loss loss = {}, std::string name = "loss");
  void update(const MetricBatch& batch) override;
  std::vector<std::pair<std::string, double>> results() const override;

 private:
  Loss loss_;
  std::string name_;
};

// Counts how often each class was predicted for each class, by the largest of outputs [N, classes]. A sample with an
// output that is not finite counts in an extra class after the last one. Its result is a text, "confusion_matrix".
class ConfusionMatrix : public SumMetric {
 public:
  // Throws kInvalidArgument for less than one class, and for another number of names. Without names the text shows
  // numbers.
  explicit ConfusionMatrix(int64_t classes, std::vector<std::string> names = {});
  void update(const MetricBatch& batch) override;
  std::vector<std::pair<std::string, double>> results() const override { return {}; }
  std::optional<std::pair<std::string, std::string>> text() const override;

  // Returns [classes, classes + 1] int64, CPU: rows are labels, columns predictions, the last column those that are not
  // finite.
  [[nodiscard]] at::Tensor matrix() const;

 protected:
  int64_t classes() const { return classes_; }
  std::string class_name(int64_t index) const;

 private:
  int64_t classes_;
  std::vector<std::string> names_;
};

// "class_accuracy/<class>" of each class: the fraction of its samples that were classified correctly; and the mean over
// the classes with samples, "mean_class_accuracy".
class PerClassAccuracy : public ConfusionMatrix {
 public:
  using ConfusionMatrix::ConfusionMatrix;
  std::vector<std::pair<std::string, double>> results() const override;
  std::optional<std::pair<std::string, std::string>> text() const override { return std::nullopt; }
};

// "average_precision" of two classes: the sum over the thresholds of precision x (recall - recall before), samples of
// equal score together, as in scikit-learn's average_precision_score. Outputs are scores [N] or [N, 1], or logits [N,
// 2], whose second minus first column is the score; labels are 0 or 1. NaN scores come last. Scores of all samples are
// kept, 16 bytes each.
class BinaryAveragePrecision : public Metric {
 public:
  void begin() override { samples_.clear(); }
  void update(const MetricBatch& batch) override;
  void reduce(core::Communicator& ranks, at::Device device) override;
  std::vector<std::pair<std::string, double>> results() const override;

 private:
  std::vector<std::pair<double, bool>> samples_;  // score, positive
};

// The mean of a named output, under its name: over all elements of [N, ...], and over samples of a scalar [].
class MeanOutput : public SumMetric {
 public:
  explicit MeanOutput(std::string output);
  void update(const MetricBatch& batch) override;
  std::vector<std::pair<std::string, double>> results() const override;

 private:
  std::string output_;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
