#include "trainyard/train/evaluation/evaluation_sum.h"

#include <vector>

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::evaluation_sum_test {
namespace {

constexpr int64_t kSamples = 1003;

// The tiny model's evaluation of those of 1,003 samples that rank `rank` has, of global batches of `batch` a rank.
class Evaluating {
 public:
  Evaluating() {
    owner_ = nn::make_executor("reference", graph_, {.mode = nn::Mode::kInference, .parameters = &set_});
    set_.allocate();
    set_.initialize(3);
    const data::Batch all = tiny_source(kSamples, kSamples)->next()[0];
    images_ = all.images();
    labels_ = all.labels();
  }

  Evaluation run(int rank, int ranks, int64_t batch) {
    std::vector<int64_t> own;
    for (int64_t i = 0; i < kSamples; ++i) {
      if (i % (batch * ranks) / batch == rank) own.push_back(i);
    }
    if (own.empty()) return {};
    const at::Tensor places = at::tensor(own);
    MemorySource source(at::index_select(images_, 0, places), at::index_select(labels_, 0, places), batch, 1, false);
    Evaluator evaluator({.graph = graph_, .devices = {.executor = "reference"}}, set_);
    return evaluator.run(source);
  }

 private:
  nn::Graph graph_ = tiny_graph();
  nn::ParameterSet set_;
  std::unique_ptr<nn::Executor> owner_;
  at::Tensor images_, labels_;
};

TEST(EvaluationSum, AnyNumberOfRanksCountsTheSame) {
  const Evaluation alone = Evaluating().run(0, 1, 100);
  ASSERT_EQ(alone.samples, kSamples);
  ASSERT_GT(alone.right_1, 0);
  ASSERT_LT(alone.right_1, alone.right_5);
  for (const int ranks : {1, 2, 3}) {
    for (const int64_t batch : {100, 500, 1000}) {  // 1000: of three ranks the last one has nothing
      parallel::on_ranks(ranks, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
        Evaluation own = Evaluating().run(group->rank(), ranks, batch);
        own.seconds = group->rank() + 1;
        const Evaluation all = sum_over_ranks(*group, own);
        EXPECT_EQ(all.samples, kSamples);
        EXPECT_EQ(all.right_1, alone.right_1);
        EXPECT_EQ(all.right_5, alone.right_5);
        EXPECT_EQ(all.top_1, static_cast<double>(alone.right_1) / kSamples);
        EXPECT_EQ(all.top_5, static_cast<double>(alone.right_5) / kSamples);
        EXPECT_NEAR(all.loss, alone.loss, 1e-6);
        EXPECT_EQ(all.seconds, ranks) << "of the slowest";
        ASSERT_EQ(all.classes.size(), alone.classes.size());
        for (size_t c = 0; c < alone.classes.size(); ++c) {
          EXPECT_EQ(all.classes[c].right, alone.classes[c].right);
          EXPECT_EQ(all.classes[c].total, alone.classes[c].total);
        }
      });
    }
  }
}

TEST(EvaluationSum, CountsWhatIsNotFinite) {
  parallel::on_ranks(3, [](const std::shared_ptr<parallel::ProcessGroup>& group) {
    Evaluation own;
    if (group->rank() > 0) own = {.samples = 2, .not_finite = group->rank(), .loss_sum = 3};
    const Evaluation all = sum_over_ranks(*group, own);
    EXPECT_EQ(all.not_finite, 3);
    EXPECT_EQ(all.loss, 1.5);
  });
}

TEST(EvaluationSum, AStopOfOneRankStopsAll) {
  parallel::on_ranks(2, [](const std::shared_ptr<parallel::ProcessGroup>& group) {
    try {
      sum_over_ranks(*group, {.samples = 1}, group->rank() == 1);
      ADD_FAILURE();
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kCancelled);
    }
  });
}

// The counts of the ranks behind it are read as what they are: shifted by one, the seconds were a number of classes.
TEST(EvaluationSum, AStopOfTheFirstRankStopsAllThatHaveMeasured) {
  parallel::on_ranks(3, [](const std::shared_ptr<parallel::ProcessGroup>& group) {
    const Evaluation own = {
        .samples = 4, .classes = {{.right = 1, .total = 4}}, .loss_sum = 6, .seconds = 5, .input_seconds = 1};
    const bool stops = group->rank() == 0;
    try {
      sum_over_ranks(*group, stops ? Evaluation() : own, stops);
      ADD_FAILURE();
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kCancelled) << error.what();
    }
  });
}

// What one rank has not measured is not known of all, and the longest wait counts.
TEST(EvaluationSum, TellsWhatWasMeasuredAndHowLongItWaited) {
  parallel::on_ranks(2, [](const std::shared_ptr<parallel::ProcessGroup>& group) {
    const Evaluation first = {
        .shows_top_5 = false, .has_accuracies = false, .samples = 2, .loss_sum = 3, .seconds = 4, .input_seconds = 3};
    const Evaluation second = {.shows_top_5 = false, .samples = 4, .loss_sum = 6, .seconds = 5, .input_seconds = 1};
    const Evaluation all = sum_over_ranks(*group, group->rank() == 0 ? first : second);
    EXPECT_EQ(all.samples, 6);
    EXPECT_EQ(all.loss, 1.5);
    EXPECT_TRUE(all.has_loss);
    EXPECT_FALSE(all.has_accuracies);
    EXPECT_FALSE(all.shows_top_5);
    EXPECT_EQ(all.seconds, 5);
    EXPECT_EQ(all.input_seconds, 3);
  });
}

}  // namespace
}  // namespace trainyard::train::evaluation_sum_test
