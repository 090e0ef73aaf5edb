#include "trainyard/data/datasets/sample_labels.h"

#include <numeric>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/testing/number_dataset.h"

namespace trainyard::data::sample_labels_test {
namespace {

// compute_class_weight("balanced") of scikit-learn 1.9.1 (tools/golden/class_balance.py).
TEST(SampleLabels, WeighClassesAsScikitLearn) {
  std::vector<int64_t> labels = {0, 0, 0, 0, 0, 0, 0, 1, 1, 3};
  const std::vector<int64_t> counts = class_counts(labels, 0, 4);
  EXPECT_EQ(counts, (std::vector<int64_t>{7, 2, 0, 1}));
  const std::vector<double> weights = balanced_class_weights(counts);
  EXPECT_DOUBLE_EQ(weights[0], 0.47619047619047616);
  EXPECT_DOUBLE_EQ(weights[1], 1.6666666666666667);
  EXPECT_EQ(weights[2], 0);
  EXPECT_DOUBLE_EQ(weights[3], 3.3333333333333335);
  // Behind the background's class, and with what no output stands for.
  labels.push_back(-1);
  labels.push_back(7);
  EXPECT_EQ(class_counts(labels, 1, 5), (std::vector<int64_t>{0, 7, 2, 0, 1}));
  EXPECT_EQ(class_counts({1, 2, 2}, -1, 2), (std::vector<int64_t>{1, 2}));
}

// Sample i has the label i; every fifth one cannot be read.
class SomeBad : public NumberDataset {
 public:
  SomeBad() : NumberDataset(1000) {}
  core::Result<Record> read(int64_t index) const override {
    if (index % 5 == 2) return core::Error(core::ErrorCode::kCorruptData, "bad");
    return NumberDataset::read(index);
  }
};

class Sets : public NumberDataset {
 public:
  Sets() : NumberDataset(3) {}
  bool has_label_sets() const override { return true; }
};

// Knows all labels but one, and its records cannot be read.
class Known : public NumberDataset {
 public:
  Known() : NumberDataset(300) {}
  core::Result<Record> read(int64_t /*index*/) const override {
    return core::Error(core::ErrorCode::kCorruptData, "bad");
  }
  std::optional<int64_t> known_label(int64_t index) const override {
    return index == 3 ? std::nullopt : std::optional(2 * index);
  }
};

TEST(SampleLabels, AreNotReadWhereTheDataSetKnowsThem) {
  const std::vector<int64_t> labels = sample_labels(Known());
  ASSERT_EQ(labels.size(), 300U);
  for (int64_t i = 0; i < 300; ++i) EXPECT_EQ(labels[i], i == 3 ? -1 : 2 * i);
}

TEST(SampleLabels, AreReadWhereTheDataSetDoesNotKnowThem) {
  const std::vector<int64_t> labels = sample_labels(SomeBad());
  ASSERT_EQ(labels.size(), 1000U);
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(labels[i], i % 5 == 2 ? -1 : i);
  EXPECT_EQ(core::code_of([] { static_cast<void>(sample_labels(Sets())); }), core::ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace trainyard::data::sample_labels_test
