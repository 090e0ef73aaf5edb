#include "trainyard/train/evaluation/mean_average_precision.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/frame.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::train {
namespace {

// Returns the average precision of samples whose indices are sorted by their scores, the highest first.
template <typename Score, typename Positive>
double average_precision(const std::vector<size_t>& sorted, const Score& score, const Positive& positive) {
  int64_t right = 0, right_before = 0;
  double sum = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    right += positive(sorted[i]) ? 1 : 0;
    if (i + 1 < sorted.size() && score(sorted[i + 1]) == score(sorted[i])) continue;  // the same threshold
    sum += static_cast<double>(right) / static_cast<double>(i + 1) * static_cast<double>(right - right_before);
    right_before = right;
  }
  return right == 0 ? 0 : sum / static_cast<double>(right);
}

}  // namespace

void MeanAveragePrecision::begin() {
  classes_ = 0;
  scores_.clear();
  positive_.clear();
}

void MeanAveragePrecision::update(const MetricBatch& batch) {
  const at::Tensor output = batch.output().to(at::kCPU, at::kDouble).contiguous();
  const at::Tensor labels = batch.labels.to(at::kCPU, at::kDouble).contiguous();
  const bool fits = output.dim() == 2 && labels.sizes() == output.sizes() && output.size(1) > 0 &&
                    (classes_ == 0 || classes_ == output.size(1));
  if (!fits) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "mean average precision cannot be measured",
         .expected = classes_ == 0 ? std::string("outputs and labels [N, classes]")
                                   : fmt::format("outputs and labels [N, {}]", classes_),
         .actual = fmt::format("{} and {}", nn::to_string(output.sizes().vec()), nn::to_string(labels.sizes().vec()))});
  }
  classes_ = output.size(1);
  const auto* const score = output.const_data_ptr<double>();
  const auto* const label = labels.const_data_ptr<double>();
  for (int64_t i = 0; i < output.numel(); ++i) {
    scores_.push_back(std::isnan(score[i]) ? -std::numeric_limits<double>::infinity() : score[i]);
    positive_.push_back(label[i] > 0.5 ? 1 : 0);
  }
}

std::vector<double> MeanAveragePrecision::by_class() const {
  std::vector<double> precisions(static_cast<size_t>(classes_));
  if (classes_ == 0) return precisions;
  const size_t classes = precisions.size();
  std::vector<size_t> sorted(scores_.size() / classes);
  for (size_t c = 0; c < classes; ++c) {
    const auto score = [&](size_t i) { return scores_[i * classes + c]; };
    std::iota(sorted.begin(), sorted.end(), size_t{0});
    std::sort(sorted.begin(), sorted.end(), [&](size_t a, size_t b) { return score(a) > score(b); });
    precisions[c] = average_precision(sorted, score, [&](size_t i) { return positive_[i * classes + c] != 0; });
  }
  return precisions;
}

std::vector<std::pair<std::string, double>> MeanAveragePrecision::results() const {
  const std::vector<double> precisions = by_class();
  const double sum = std::accumulate(precisions.begin(), precisions.end(), 0.0);
  const double mean =
      precisions.empty() ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(precisions.size());
  return {{"mean_average_precision", mean}};
}

std::string MeanAveragePrecision::samples_text() const {
  std::string scores(scores_.size() * sizeof(double), '\0');
  std::memcpy(scores.data(), scores_.data(), scores.size());
  return core::BodyWriter()
      .number(classes_)
      .text(scores)
      .text({reinterpret_cast<const char*>(positive_.data()), positive_.size()})
      .take();
}

void MeanAveragePrecision::add_samples_text(std::string_view text) {
  core::BodyReader body(text);
  const int64_t classes = body.number();
  const std::string scores = body.text(), positive = body.text();
  if (positive.empty()) return;
  if (classes < 1 || (classes_ != 0 && classes != classes_) || scores.size() != positive.size() * sizeof(double)) {
    throw core::Error(core::ErrorCode::kCorruptData, "the scores of another process are of other classes");
  }
  classes_ = classes;
  const size_t before = scores_.size();
  scores_.resize(before + positive.size());
  std::memcpy(scores_.data() + before, scores.data(), scores.size());
  positive_.insert(positive_.end(), positive.begin(), positive.end());
}

void MeanAveragePrecision::reduce(core::Communicator& ranks, at::Device device) {
  // Ranks may have seen different numbers of samples: all send as many bytes as the longest, behind their number.
  const std::string own = samples_text();
  at::Tensor longest = at::zeros({1}, at::kLong);
  longest.fill_(std::ssize(own));
  longest = longest.to(device);
  ranks.all_reduce(longest, core::ReduceOp::kMax);
  const at::Tensor bytes = at::zeros({longest.item<int64_t>() + static_cast<int64_t>(sizeof(int64_t))}, at::kByte);
  const auto size = static_cast<int64_t>(own.size());
  std::memcpy(bytes.mutable_data_ptr(), &size, sizeof size);
  std::memcpy(static_cast<char*>(bytes.mutable_data_ptr()) + sizeof size, own.data(), own.size());
  begin();
  for (const at::Tensor& gathered : ranks.all_gather(bytes.to(device))) {
    const at::Tensor there = gathered.cpu().contiguous();
    const auto* const data = static_cast<const char*>(there.const_data_ptr());
    int64_t length = 0;
    std::memcpy(&length, data, sizeof length);
    add_samples_text({data + sizeof length, static_cast<size_t>(length)});
  }
}

}  // namespace trainyard::train
