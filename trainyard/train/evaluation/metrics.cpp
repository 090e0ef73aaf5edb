#include "trainyard/train/evaluation/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/loss.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;
using Results = std::vector<std::pair<std::string, double>>;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double ratio(double part, int64_t all) {
  return all == 0 ? kNan : part / static_cast<double>(all);
}

[[noreturn]] void refuse_form(const std::string& metric, const std::string& expected, const at::Tensor& output,
                              const at::Tensor& labels) {
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = fmt::format("{} cannot be measured here", metric),
               .expected = expected,
               .actual = fmt::format("outputs [{}], labels [{}]", fmt::join(output.sizes(), ", "),
                                     fmt::join(labels.sizes(), ", "))});
}

// All ranks' sum of a CPU tensor, by way of the device.
void reduce_sum(at::Tensor& tensor, core::Communicator& ranks, at::Device device) {
  const at::Tensor travelling = tensor.to(device);
  ranks.all_reduce(travelling, core::ReduceOp::kSum);
  tensor = travelling.cpu();
}

}  // namespace

SumMetric::SumMetric(int64_t counts, int64_t sums)
    : counts_(at::zeros({counts}, at::kLong)), sums_(at::zeros({sums}, at::kDouble)) {}

void SumMetric::begin() {
  counts_.zero_();
  sums_.zero_();
}

void SumMetric::reduce(core::Communicator& ranks, at::Device device) {
  if (counts_.numel() > 0) reduce_sum(counts_, ranks, device);
  if (sums_.numel() > 0) reduce_sum(sums_, ranks, device);
}

int64_t SumMetric::count(int64_t index) const {
  return counts_.const_data_ptr<int64_t>()[index];
}

double SumMetric::sum(int64_t index) const {
  return sums_.const_data_ptr<double>()[index];
}

void SumMetric::add_count(int64_t index, int64_t value) {
  counts_.mutable_data_ptr<int64_t>()[index] += value;
}

void SumMetric::add_sum(int64_t index, double value) {
  sums_.mutable_data_ptr<double>()[index] += value;
}

TopKAccuracy::TopKAccuracy(int64_t k) : SumMetric(2, 0), k_(k) {
  if (k < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "top-k accuracy needs a k of at least 1", .actual = std::to_string(k)});
  }
}

void TopKAccuracy::update(const MetricBatch& batch) {
  add_count(0, nn::top_k_correct(batch.output(), batch.labels, k_).item<int64_t>());
  add_count(1, batch.labels.size(0));
}

Results TopKAccuracy::results() const {
  return {{fmt::format("top_{}_accuracy", k_), ratio(static_cast<double>(count(0)), count(1))}};
}

MeanLoss::MeanLoss(Loss loss, std::string name) : SumMetric(1, 1), loss_(std::move(loss)), name_(std::move(name)) {
  if (loss_) return;
  loss_ = [](const at::Tensor& output, const at::Tensor& labels) { return nn::softmax_cross_entropy(output, labels); };
}

void MeanLoss::update(const MetricBatch& batch) {
  const int64_t samples = batch.labels.size(0);
  add_sum(0, loss_(batch.output(), batch.labels).item<double>() * static_cast<double>(samples));
  add_count(0, samples);
}

Results MeanLoss::results() const {
  return {{name_, ratio(sum(0), count(0))}};
}

ConfusionMatrix::ConfusionMatrix(int64_t classes, std::vector<std::string> names)
    : SumMetric(std::max<int64_t>(classes, 0) * (classes + 1), 0), classes_(classes), names_(std::move(names)) {
  if (classes >= 1 && (names_.empty() || std::ssize(names_) == classes)) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = "classes cannot be told apart so",
                                            .expected = "at least one class, and names of all or of none",
                                            .actual = fmt::format("{} classes, {} names", classes, names_.size())});
}

void ConfusionMatrix::update(const MetricBatch& batch) {
  const at::Tensor& output = batch.output();
  if (output.dim() != 2 || output.size(1) != classes_ || batch.labels.dim() != 1) {
    refuse_form("accuracy of classes", fmt::format("outputs [N, {}], labels [N]", classes_), output, batch.labels);
  }
  const at::Tensor labels = batch.labels.cpu().contiguous();
  nn::check_labels(labels, classes_);
  const at::Tensor predicted =
      output.argmax(1).masked_fill(output.isfinite().all(1).logical_not(), classes_).cpu().contiguous();
  for (int64_t i = 0; i < labels.size(0); ++i) {
    add_count(labels.const_data_ptr<int64_t>()[i] * (classes_ + 1) + predicted.const_data_ptr<int64_t>()[i], 1);
  }
}

at::Tensor ConfusionMatrix::matrix() const {
  return counts().clone().reshape({classes_, classes_ + 1});
}

std::string ConfusionMatrix::class_name(int64_t index) const {
  return names_.empty() ? std::to_string(index) : names_[static_cast<size_t>(index)];
}

std::optional<std::pair<std::string, std::string>> ConfusionMatrix::text() const {
  std::string table = "| label |", line = "|---|";
  for (int64_t column = 0; column < classes_; ++column) {
    table += fmt::format(" {} |", class_name(column));
    line += "---|";
  }
  table += " not finite |\n" + line + "---|\n";
  for (int64_t row = 0; row < classes_; ++row) {
    table += fmt::format("| {} |", class_name(row));
    for (int64_t column = 0; column <= classes_; ++column) {
      table += fmt::format(" {} |", count(row * (classes_ + 1) + column));
    }
    table += "\n";
  }
  return std::pair<std::string, std::string>("confusion_matrix", table);
}

Results PerClassAccuracy::results() const {
  Results results;
  double sum = 0;
  int64_t seen = 0;
  for (int64_t row = 0; row < classes(); ++row) {
    int64_t samples = 0;
    for (int64_t column = 0; column <= classes(); ++column) samples += count(row * (classes() + 1) + column);
    const double accuracy = ratio(static_cast<double>(count(row * (classes() + 1) + row)), samples);
    results.emplace_back("class_accuracy/" + class_name(row), accuracy);
    if (samples == 0) continue;
    sum += accuracy;
    ++seen;
  }
  results.emplace_back("mean_class_accuracy", ratio(sum, seen));
  return results;
}

void BinaryAveragePrecision::update(const MetricBatch& batch) {
  const at::Tensor output = batch.output().to(at::kCPU, at::kDouble);
  const at::Tensor labels = batch.labels.cpu().contiguous();
  const int64_t count = labels.dim() == 1 ? labels.size(0) : -1;
  at::Tensor scores;
  if (output.dim() == 2 && output.size(1) == 2) {
    scores = output.select(1, 1) - output.select(1, 0);
  } else if (output.numel() == output.size(0)) {
    scores = output.reshape({-1});
  }
  if (!scores.defined() || scores.size(0) != count) {
    refuse_form("average precision", "outputs [N], [N, 1] or [N, 2], labels [N]", output, labels);
  }
  nn::check_labels(labels, 2);
  scores = scores.contiguous();
  for (int64_t i = 0; i < count; ++i) {
    const double score = scores.const_data_ptr<double>()[i];
    samples_.emplace_back(std::isnan(score) ? -std::numeric_limits<double>::infinity() : score,
                          labels.const_data_ptr<int64_t>()[i] == 1);
  }
}

void BinaryAveragePrecision::reduce(core::Communicator& ranks, at::Device device) {
  // Ranks may have seen different numbers of samples: all send as many rows as the longest, and say how many count.
  at::Tensor longest = at::zeros({1}, at::kLong);
  longest.fill_(std::ssize(samples_));
  longest = longest.to(device);
  ranks.all_reduce(longest, core::ReduceOp::kMax);
  const at::Tensor own = at::zeros({longest.item<int64_t>() + 1, 2}, at::kDouble);
  auto* number = own.mutable_data_ptr<double>();
  *number = static_cast<double>(samples_.size());
  for (const auto& [score, positive] : samples_) {
    *(number += 2) = score;
    number[1] = positive ? 1 : 0;
  }
  samples_.clear();
  for (const at::Tensor& gathered : ranks.all_gather(own.to(device))) {
    const at::Tensor rows = gathered.cpu().contiguous();
    const auto* row = rows.const_data_ptr<double>();
    const auto count = static_cast<int64_t>(*row);
    for (int64_t i = 0; i < count; ++i) {
      row += 2;
      samples_.emplace_back(row[0], row[1] != 0);
    }
  }
}

Results BinaryAveragePrecision::results() const {
  std::vector<std::pair<double, bool>> sorted = samples_;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  const auto positives = std::count_if(sorted.begin(), sorted.end(), [](const auto& s) { return s.second; });
  double sum = 0;
  int64_t right = 0, right_before = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    right += sorted[i].second ? 1 : 0;
    if (i + 1 < sorted.size() && sorted[i + 1].first == sorted[i].first) continue;  // the same threshold
    sum += static_cast<double>(right) / static_cast<double>(i + 1) * static_cast<double>(right - right_before);
    right_before = right;
  }
  return {{"average_precision", ratio(sum, positives)}};
}

MeanOutput::MeanOutput(std::string output) : SumMetric(1, 1), output_(std::move(output)) {}

void MeanOutput::update(const MetricBatch& batch) {
  const at::Tensor& output = batch.outputs[output_];
  const int64_t samples = batch.labels.size(0);
  add_sum(0, output.to(at::kDouble).mean().item<double>() * static_cast<double>(samples));
  add_count(0, samples);
}

Results MeanOutput::results() const {
  return {{output_, ratio(sum(0), count(0))}};
}

}  // namespace trainyard::train
