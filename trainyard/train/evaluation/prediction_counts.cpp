#include "trainyard/train/evaluation/prediction_counts.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/frame.h"
#include "trainyard/nn/execution/loss.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

namespace {

constexpr double kUnitsOfConfidence = 4294967296.0;    // 2^32
constexpr int64_t kGatheredBytes = int64_t{32} << 20;  // of all ranks together; ProcessGroup::gather() takes twice that

double ratio(int64_t part, int64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

// Whether `a` is listed before `b`.
bool more_wrong(const WrongPrediction& a, const WrongPrediction& b) {
  return a.confidence != b.confidence ? a.confidence > b.confidence : a.sample < b.sample;
}

}  // namespace

void PredictionCountsOptions::validate() const {
  const auto require = [](bool holds, const char* name, int64_t value, const char* expected) {
    if (holds) return;
    throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("{} of an evaluation is out of range", name),
                                              .expected = expected,
                                              .actual = std::to_string(value)});
  };
  require(classes >= 1, "classes", classes, "at least 1");
  require(calibration_bins >= 1 && calibration_bins <= kMostBins, "calibration_bins", calibration_bins, "1 to 1000");
  require(most_wrong >= 0 && most_wrong <= kMostWrong, "most_wrong", most_wrong, "0 to 1000");
  for (const int64_t k : top_k) require(k >= 1, "top_k", k, "at least 1");
}

double ClassPredictions::precision() const {
  return ratio(right, predicted);
}

double ClassPredictions::recall() const {
  return ratio(right, images);
}

double ClassPredictions::f1() const {
  return ratio(2 * right, predicted + images);
}

double CalibrationBin::accuracy() const {
  return ratio(right, images);
}

double CalibrationBin::confidence() const {
  return ratio(confidence_sum, images) / kUnitsOfConfidence;
}

PredictionCounts::PredictionCounts(PredictionCountsOptions options) : options_(std::move(options)) {
  options_.validate();
  clear();
}

void PredictionCounts::clear() {
  images_ = not_finite_ = 0;
  classes_.assign(static_cast<size_t>(options_.classes), {});
  const int64_t pairs = options_.classes <= options_.most_confused_classes ? options_.classes * options_.classes : 0;
  confusion_.assign(static_cast<size_t>(pairs), 0);
  top_k_right_.assign(options_.top_k.size(), 0);
  calibration_.assign(static_cast<size_t>(options_.calibration_bins), {});
  wrong_.clear();
}

void PredictionCounts::add(const at::Tensor& logits, const at::Tensor& labels,
                           std::span<const int64_t> sample_indices) {
  const int64_t count = logits.dim() == 2 ? logits.size(0) : -1;
  const bool indexed = !sample_indices.empty();
  if (count < 0 || logits.size(1) != options_.classes || labels.dim() != 1 || labels.size(0) != count ||
      (indexed && std::ssize(sample_indices) != count)) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "predictions cannot be counted",
                 .expected = fmt::format("logits [N, {}], labels [N], indices [N] or none", options_.classes),
                 .actual = fmt::format("logits [{}], labels [{}], {} indices", fmt::join(logits.sizes(), ", "),
                                       fmt::join(labels.sizes(), ", "), sample_indices.size())});
  }
  const at::Tensor rows = logits.to(at::kCPU, at::kFloat).contiguous();
  const at::Tensor own_labels = labels.cpu().contiguous();
  nn::check_labels(own_labels, options_.classes);
  for (int64_t i = 0; i < count; ++i) {
    add_row(rows.const_data_ptr<float>() + i * options_.classes, own_labels.const_data_ptr<int64_t>()[i],
            indexed ? sample_indices[static_cast<size_t>(i)] : -1);
  }
}

void PredictionCounts::add_row(const float* logits, int64_t label, int64_t sample) {
  ++images_;
  ClassPredictions& of_label = classes_[static_cast<size_t>(label)];
  ++of_label.images;
  const std::span<const float> row(logits, static_cast<size_t>(options_.classes));
  if (!std::all_of(row.begin(), row.end(), [](float logit) { return std::isfinite(logit); })) {
    ++not_finite_;
    return;
  }
  const float own = logits[label];
  const auto larger = std::count_if(row.begin(), row.end(), [own](float logit) { return logit > own; });
  for (size_t i = 0; i < top_k_right_.size(); ++i) top_k_right_[i] += larger < options_.top_k[i] ? 1 : 0;
  const int64_t predicted = larger == 0 ? label : std::max_element(row.begin(), row.end()) - row.begin();
  ++classes_[static_cast<size_t>(predicted)].predicted;
  if (larger == 0) ++of_label.right;
  if (has_confusion()) ++confusion_[static_cast<size_t>(label * options_.classes + predicted)];

  const double largest = logits[predicted];
  double sum = 0;
  for (const float logit : row) sum += std::exp(logit - largest);
  const double confidence = 1 / sum;  // in (0, 1]
  const auto bins = static_cast<double>(options_.calibration_bins);
  const auto bin =
      std::clamp<int64_t>(static_cast<int64_t>(std::ceil(confidence * bins)) - 1, 0, options_.calibration_bins - 1);
  CalibrationBin& of_confidence = calibration_[static_cast<size_t>(bin)];
  ++of_confidence.images;
  of_confidence.right += larger == 0 ? 1 : 0;
  of_confidence.confidence_sum += std::llround(confidence * kUnitsOfConfidence);
  if (larger > 0 && sample >= 0) keep({sample, label, predicted, confidence});
}

void PredictionCounts::keep(const WrongPrediction& wrong) {
  if (options_.most_wrong == 0) return;
  // An evaluation that wraps around the data meets images again.
  const auto same = std::find_if(wrong_.begin(), wrong_.end(),
                                 [&](const WrongPrediction& each) { return each.sample == wrong.sample; });
  if (same != wrong_.end()) {
    if (!more_wrong(wrong, *same)) return;
    *same = wrong;
    std::make_heap(wrong_.begin(), wrong_.end(), more_wrong);
    return;
  }
  if (std::ssize(wrong_) == options_.most_wrong) {
    if (!more_wrong(wrong, wrong_.front())) return;
    std::pop_heap(wrong_.begin(), wrong_.end(), more_wrong);
    wrong_.pop_back();
  }
  wrong_.push_back(wrong);
  std::push_heap(wrong_.begin(), wrong_.end(), more_wrong);
}

int64_t PredictionCounts::right() const {
  int64_t sum = 0;
  for (const ClassPredictions& of_class : classes_) sum += of_class.right;
  return sum;
}

int64_t PredictionCounts::confused(int64_t label, int64_t predicted) const {
  return confusion_.at(static_cast<size_t>(label * options_.classes + predicted));
}

std::vector<std::pair<std::string, double>> PredictionCounts::top_k_accuracies() const {
  std::vector<std::pair<std::string, double>> accuracies;
  for (size_t i = 0; i < top_k_right_.size(); ++i) {
    accuracies.emplace_back(fmt::format("top_{}_accuracy", options_.top_k[i]), ratio(top_k_right_[i], images_));
  }
  return accuracies;
}

double PredictionCounts::calibration_error() const {
  double sum = 0;
  for (const CalibrationBin& bin : calibration_) {
    sum += static_cast<double>(bin.images) * std::abs(bin.accuracy() - bin.confidence());
  }
  const int64_t counted = images_ - not_finite_;
  return counted == 0 ? 0 : sum / static_cast<double>(counted);
}

std::vector<WrongPrediction> PredictionCounts::most_wrong() const {
  std::vector<WrongPrediction> sorted = wrong_;
  std::sort(sorted.begin(), sorted.end(), more_wrong);
  return sorted;
}

std::string PredictionCounts::text_of_sums() const {
  core::BodyWriter body;
  body.number(images_).number(not_finite_);
  for (const ClassPredictions& each : classes_) body.number(each.images).number(each.predicted).number(each.right);
  for (const int64_t right : top_k_right_) body.number(right);
  for (const CalibrationBin& bin : calibration_) body.number(bin.images).number(bin.right).number(bin.confidence_sum);
  body.number(std::ssize(wrong_));
  for (const WrongPrediction& wrong : wrong_) {
    body.number(wrong.sample).number(wrong.label).number(wrong.predicted).real(wrong.confidence);
  }
  return body.take();
}

void PredictionCounts::add_sums(std::string_view text) {
  core::BodyReader body(text);
  images_ += body.number();
  not_finite_ += body.number();
  for (ClassPredictions& each : classes_) {
    each.images += body.number();
    each.predicted += body.number();
    each.right += body.number();
  }
  for (int64_t& right : top_k_right_) right += body.number();
  for (CalibrationBin& bin : calibration_) {
    bin.images += body.number();
    bin.right += body.number();
    bin.confidence_sum += body.number();
  }
  for (int64_t left = body.number(); left > 0; --left) {
    WrongPrediction wrong;
    wrong.sample = body.number();
    wrong.label = body.number();
    wrong.predicted = body.number();
    wrong.confidence = body.real();
    keep(wrong);
  }
  body.end();
}

// Pairs of place and count, of those that are not 0.
std::string PredictionCounts::text_of_confusion(int64_t first_row, int64_t end_row) const {
  core::BodyWriter body;
  for (int64_t place = first_row * options_.classes; place < end_row * options_.classes; ++place) {
    const int64_t count = confusion_[static_cast<size_t>(place)];
    if (count != 0) body.number(place).number(count);
  }
  return body.take();
}

void PredictionCounts::add_confusion(std::string_view text) {
  core::BodyReader body(text);
  constexpr size_t kPairBytes = 16;
  for (size_t left = text.size() / kPairBytes; left > 0; --left) {
    const int64_t place = body.number();
    confusion_.at(static_cast<size_t>(place)) += body.number();
  }
  body.end();
}

void PredictionCounts::add_other_ranks(parallel::ProcessGroup& ranks) {
  const auto gather = [&](const std::string& own, void (PredictionCounts::*add_part)(std::string_view)) {
    const std::vector<std::string> texts = ranks.gather("the predictions of an evaluation", own);
    for (size_t rank = 0; rank < texts.size(); ++rank) {
      if (static_cast<int>(rank) != ranks.rank()) (this->*add_part)(texts[rank]);
    }
  };
  gather(text_of_sums(), &PredictionCounts::add_sums);
  if (!has_confusion()) return;
  const int64_t rows = std::max<int64_t>(1, kGatheredBytes / (16 * options_.classes * ranks.size()));
  for (int64_t row = 0; row < options_.classes; row += rows) {
    gather(text_of_confusion(row, std::min(row + rows, options_.classes)), &PredictionCounts::add_confusion);
  }
}

}  // namespace trainyard::train
