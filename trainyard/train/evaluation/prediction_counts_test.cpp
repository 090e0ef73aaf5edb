#include "trainyard/train/evaluation/prediction_counts.h"

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/golden_lines.h"
#include "trainyard/parallel/testing/on_ranks.h"

namespace trainyard::train::prediction_counts_test {
namespace {

using ::testing::HasSubstr;

// What scikit-learn has computed.
struct Golden {
  int64_t classes = 0;
  std::vector<int64_t> labels;
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<int64_t>> confusion;
  std::vector<std::vector<double>> of_classes;  // precision, recall, f1
  std::map<int64_t, double> top_k, errors;      // by k, by bins

  Golden() {
    for (const std::string& line : core::golden_lines("trainyard/train/testdata/prediction_counts.txt")) {
      std::istringstream words(line);
      std::string kind;
      words >> kind;
      int64_t number = 0;
      if (kind == "image") {
        words >> number;
        labels.push_back(number);
        logits.emplace_back();
        for (float logit = 0; words >> logit;) logits.back().push_back(logit);
      } else if (kind == "confusion") {
        confusion.emplace_back();
        while (words >> number) confusion.back().push_back(number);
      } else if (kind == "class") {
        of_classes.emplace_back();
        for (double value = 0; words >> value;) of_classes.back().push_back(value);
      } else {
        words >> number;
        words >> (kind == "ece" ? errors : top_k)[number];
      }
    }
    classes = static_cast<int64_t>(confusion.size());
  }
  int64_t size() const { return static_cast<int64_t>(labels.size()); }

  // Adds images [first, end).
  void add_to(PredictionCounts& counts, int64_t first, int64_t end) const {
    const at::Tensor rows = at::empty({end - first, classes}), own = at::empty({end - first}, at::kLong);
    std::vector<int64_t> indices;
    for (int64_t i = first; i < end; ++i) {
      const auto& row = logits[static_cast<size_t>(i)];
      std::copy(row.begin(), row.end(), rows.mutable_data_ptr<float>() + (i - first) * classes);
      own.mutable_data_ptr<int64_t>()[i - first] = labels[static_cast<size_t>(i)];
      indices.push_back(i);
    }
    counts.add(rows, own, indices);
  }
};

void expect_golden(const PredictionCounts& counts, const Golden& golden) {
  EXPECT_EQ(counts.images(), golden.size());
  for (int64_t label = 0; label < golden.classes; ++label) {
    for (int64_t predicted = 0; predicted < golden.classes; ++predicted) {
      EXPECT_EQ(counts.confused(label, predicted),
                golden.confusion[static_cast<size_t>(label)][static_cast<size_t>(predicted)])
          << label << " " << predicted;
    }
    const ClassPredictions& of_class = counts.classes()[static_cast<size_t>(label)];
    const auto& numbers = golden.of_classes[static_cast<size_t>(label)];
    EXPECT_NEAR(of_class.precision(), numbers[0], 1e-15) << label;
    EXPECT_NEAR(of_class.recall(), numbers[1], 1e-15) << label;
    EXPECT_NEAR(of_class.f1(), numbers[2], 1e-15) << label;
  }
  for (const auto& [name, value] : counts.top_k_accuracies()) {
    const int64_t k = std::stoll(name.substr(4));
    EXPECT_NEAR(value, golden.top_k.at(k), 1e-15) << name;
  }
  EXPECT_NEAR(counts.calibration_error(), golden.errors.at(counts.options().calibration_bins), 1e-9);
}

TEST(PredictionCounts, AreThoseOfScikitLearn) {
  const Golden golden;
  ASSERT_EQ(golden.classes, 7);
  ASSERT_EQ(golden.of_classes[5][1], 0) << "a class without images";
  ASSERT_EQ(golden.of_classes[6][0], 0) << "a class that is never predicted";
  for (const int64_t bins : {1, 10, 15}) {
    for (const int64_t batch : {1, 7, 120}) {
      PredictionCounts counts({.classes = 7, .top_k = {1, 2, 3, 5}, .calibration_bins = bins});
      for (int64_t i = 0; i < golden.size(); i += batch) golden.add_to(counts, i, std::min(i + batch, golden.size()));
      expect_golden(counts, golden);
    }
  }
}

// Everything that a count holds, bit by bit.
std::string all_of(const PredictionCounts& counts) {
  std::ostringstream text;
  text << std::hexfloat << counts.images() << " " << counts.not_finite() << " " << counts.calibration_error();
  for (const ClassPredictions& each : counts.classes()) {
    text << "\nclass " << each.images << " " << each.predicted << " " << each.right;
  }
  for (const CalibrationBin& bin : counts.calibration()) {
    text << "\nbin " << bin.images << " " << bin.right << " " << bin.confidence_sum;
  }
  for (const auto& [name, value] : counts.top_k_accuracies()) text << "\n" << name << " " << value;
  for (int64_t i = 0; counts.has_confusion() && i < counts.options().classes; ++i) {
    for (int64_t k = 0; k < counts.options().classes; ++k) text << " " << counts.confused(i, k);
  }
  for (const WrongPrediction& wrong : counts.most_wrong()) {
    text << "\nwrong " << wrong.sample << " " << wrong.label << " " << wrong.predicted << " " << wrong.confidence;
  }
  return text.str();
}

// Ranks that have parts of the images of different sizes, one of them none.
TEST(PredictionCounts, OfRanksHaveTheBitsOfOneProcess) {
  const Golden golden;
  for (const int64_t confused : {1000, 3}) {
    const PredictionCountsOptions options{
        .classes = 7, .top_k = {2, 4}, .most_confused_classes = confused, .most_wrong = 9};
    PredictionCounts one(options);
    golden.add_to(one, 0, golden.size());
    ASSERT_EQ(one.has_confusion(), confused == 1000);
    for (const std::vector<int64_t>& ends : {std::vector<int64_t>{50, 120}, {0, 1, 90, 120}}) {
      std::vector<std::string> texts(ends.size());
      parallel::on_ranks(static_cast<int>(ends.size()), [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
        const auto rank = static_cast<size_t>(group->rank());
        PredictionCounts own(options);
        const int64_t first = rank == 0 ? 0 : ends[rank - 1];
        if (first < ends[rank]) golden.add_to(own, first, ends[rank]);
        own.add_other_ranks(*group);
        texts[rank] = all_of(own);
      });
      for (const std::string& text : texts) EXPECT_EQ(text, all_of(one));
    }
  }
}

// Two classes, whose logits 0 and log(p / (1 - p)) give confidence p.
void add_sure(PredictionCounts& counts, double p, int64_t label, int64_t sample) {
  const auto logit = static_cast<float>(std::log(p / (1 - p)));
  counts.add(at::tensor({0.0F, logit}).reshape({1, 2}), at::tensor(std::vector<int64_t>{label}),
             std::vector<int64_t>{sample});
}

// Ten predictions of confidence 0.9, of which six are right, and ten of 0.6, all right.
TEST(PredictionCounts, CalibrationErrorIsTheClosedForm) {
  PredictionCounts counts({.classes = 2, .calibration_bins = 5});
  for (int64_t i = 0; i < 10; ++i) add_sure(counts, 0.9, i < 6 ? 1 : 0, i);
  for (int64_t i = 0; i < 10; ++i) add_sure(counts, 0.59, 1, 10 + i);
  EXPECT_NEAR(counts.calibration_error(), 0.5 * 0.3 + 0.5 * 0.41, 1e-7);
  EXPECT_EQ(counts.calibration()[4].images, 10);
  EXPECT_EQ(counts.calibration()[2].images, 10) << "0.59 is in (0.4, 0.6]";
  EXPECT_EQ(counts.calibration()[4].accuracy(), 0.6);
  EXPECT_EQ(counts.calibration()[0].confidence(), 0) << "an empty bin";
}

// Bins hold their upper end: a confidence of exactly 1/2 is in the lower of two bins, one of 1 in the last.
TEST(PredictionCounts, BinsHoldTheirUpperEnd) {
  PredictionCounts counts({.classes = 2, .calibration_bins = 2});
  counts.add(at::zeros({1, 2}), at::zeros({1}, at::kLong));
  EXPECT_EQ(counts.calibration()[0].images, 1);
  counts.add(at::tensor({200.0F, 0.0F}).reshape({1, 2}), at::zeros({1}, at::kLong));
  EXPECT_EQ(counts.calibration()[1].images, 1);
  EXPECT_EQ(counts.calibration()[1].confidence(), 1);
}

TEST(PredictionCounts, ATieCountsAsTopOneAccuracyCountsIt) {
  PredictionCounts counts({.classes = 3, .top_k = {1}});
  const at::Tensor logits = at::tensor({1.0F, 2.0F, 2.0F}).reshape({1, 3});
  counts.add(logits, at::tensor(std::vector<int64_t>{2}));
  counts.add(logits, at::tensor(std::vector<int64_t>{0}));
  EXPECT_EQ(counts.confused(2, 2), 1);
  EXPECT_EQ(counts.confused(0, 1), 1) << "the first of the largest";
  EXPECT_EQ(counts.right(), 1);
  EXPECT_EQ(counts.top_k_accuracies().front().second, 0.5);
}

TEST(PredictionCounts, WhatIsNotFinitePredictsNothing) {
  PredictionCounts counts({.classes = 2, .top_k = {1, 2}});
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    counts.add(at::tensor({5.0F, bad}).reshape({1, 2}), at::zeros({1}, at::kLong), std::vector<int64_t>{1});
  }
  counts.add(at::tensor({5.0F, 1.0F}).reshape({1, 2}), at::zeros({1}, at::kLong), std::vector<int64_t>{2});
  EXPECT_EQ(counts.images(), 4);
  EXPECT_EQ(counts.not_finite(), 3);
  EXPECT_EQ(counts.classes()[0].images, 4);
  EXPECT_EQ(counts.classes()[0].predicted, 1);
  EXPECT_EQ(counts.classes()[0].recall(), 0.25);
  EXPECT_EQ(counts.confused(0, 0) + counts.confused(0, 1), 1);
  EXPECT_EQ(counts.top_k_accuracies()[1].second, 0.25);
  EXPECT_NEAR(counts.calibration_error(), 1 - 1 / (1 + std::exp(-4)), 1e-9) << "of the one that predicts";
  EXPECT_TRUE(counts.most_wrong().empty());
}

std::vector<int64_t> samples_of(const PredictionCounts& counts) {
  std::vector<int64_t> samples;
  for (const WrongPrediction& wrong : counts.most_wrong()) samples.push_back(wrong.sample);
  return samples;
}

TEST(PredictionCounts, TheMostWrongAreTheSameInAnyOrder) {
  const std::vector<std::pair<double, int64_t>> wrong = {{0.7, 0}, {0.9, 1}, {0.8, 2}, {0.9, 3},
                                                         {0.9, 4}, {0.6, 5}, {0.8, 6}};
  for (const int step : {1, 2, 3, 4, 5, 6}) {
    PredictionCounts counts({.classes = 2, .most_wrong = 4});
    for (size_t i = 0; i < wrong.size(); ++i) {
      const auto& [confidence, sample] = wrong[i * static_cast<size_t>(step) % wrong.size()];
      add_sure(counts, confidence, 0, sample);
    }
    add_sure(counts, 0.99, 1, 7);  // right
    EXPECT_EQ(samples_of(counts), (std::vector<int64_t>{1, 3, 4, 2})) << step;
    EXPECT_NEAR(counts.most_wrong()[3].confidence, 0.8, 1e-7);
    EXPECT_EQ(counts.most_wrong()[3].predicted, 1);
  }
}

// An evaluation that wraps around the data.
TEST(PredictionCounts, AnImageIsMostWrongOnce) {
  PredictionCounts counts({.classes = 2, .most_wrong = 3});
  for (const double confidence : {0.6, 0.8, 0.7}) {
    for (const int64_t sample : {4, 2}) add_sure(counts, confidence, 0, sample);
  }
  EXPECT_EQ(samples_of(counts), (std::vector<int64_t>{2, 4}));
  EXPECT_NEAR(counts.most_wrong()[0].confidence, 0.8, 1e-7);
  // One that was the least wrong, and is the most wrong when it is met again.
  PredictionCounts again({.classes = 2, .most_wrong = 3});
  for (const int64_t sample : {0, 1, 2}) add_sure(again, 0.6 + 0.1 * static_cast<double>(sample), 0, sample);
  add_sure(again, 0.9, 0, 0);
  add_sure(again, 0.75, 0, 3);
  EXPECT_EQ(samples_of(again), (std::vector<int64_t>{0, 2, 3}));
}

TEST(PredictionCounts, KeepsNoWrongOnesWithoutIndicesAndForgetsAllWithClear) {
  PredictionCounts counts({.classes = 2, .top_k = {1}});
  counts.add(at::tensor({0.0F, 3.0F}).reshape({1, 2}), at::zeros({1}, at::kLong));
  EXPECT_TRUE(counts.most_wrong().empty());
  add_sure(counts, 0.9, 0, 1);
  EXPECT_EQ(counts.most_wrong().size(), 1U);
  counts.clear();
  EXPECT_EQ(all_of(counts), all_of(PredictionCounts({.classes = 2, .top_k = {1}})));
}

TEST(PredictionCounts, ManyClassesHaveNoMatrix) {
  PredictionCounts counts({.classes = 1025, .most_wrong = 1});
  at::Tensor logits = at::zeros({2, 1025});
  logits[0][1000] = 5;
  logits[1][3] = 5;
  counts.add(logits, at::tensor(std::vector<int64_t>{1000, 2}), std::vector<int64_t>{0, 1});
  EXPECT_FALSE(counts.has_confusion());
  EXPECT_EQ(counts.classes()[1000].precision(), 1);
  EXPECT_EQ(counts.classes()[3].precision(), 0);
  EXPECT_EQ(samples_of(counts), std::vector<int64_t>{1});
}

TEST(PredictionCounts, RefusesWhatDoesNotFit) {
  EXPECT_THAT(core::message_of([] { PredictionCounts({.classes = 0}); }), HasSubstr("classes"));
  EXPECT_THAT(core::message_of([] { PredictionCounts({.top_k = {5, 0}}); }), HasSubstr("top_k"));
  EXPECT_THAT(core::message_of([] { PredictionCounts({.calibration_bins = 0}); }), HasSubstr("calibration_bins"));
  EXPECT_THAT(core::message_of([] { PredictionCounts({.most_wrong = 1001}); }), HasSubstr("most_wrong"));
  PredictionCounts counts({.classes = 3});
  EXPECT_THAT(core::message_of([&] {
                counts.add(at::zeros({2, 4}), at::zeros({2}, at::kLong));
              }),
              HasSubstr("logits [N, 3]"));
  EXPECT_THAT(core::message_of([&] {
                counts.add(at::zeros({2, 3}), at::zeros({2}, at::kLong), std::vector<int64_t>{1});
              }),
              HasSubstr("1 indices"));
  EXPECT_THAT(core::message_of([&] {
                counts.add(at::zeros({1, 3}), at::tensor(std::vector<int64_t>{3}));
              }),
              HasSubstr("3"));
}

}  // namespace
}  // namespace trainyard::train::prediction_counts_test
