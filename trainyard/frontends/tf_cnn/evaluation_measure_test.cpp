// What evaluations measure in addition to loss and accuracies, over the samples of all ranks, and anew each time.
#include "trainyard/frontends/tf_cnn/evaluation_measure.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/parallel/testing/on_ranks.h"

namespace trainyard::frontends::evaluation_measure_test {
namespace {

using ::testing::IsEmpty;
using Group = std::shared_ptr<parallel::ProcessGroup>;
using Numbers = std::vector<std::pair<std::string, double>>;

data::Batch batch_of(const at::Tensor& labels) {
  data::Batch batch;
  batch.tensors.set("labels", labels);
  return batch;
}

// The values of train/evaluation/mean_average_precision_test.cpp, of scikit-learn.
TEST(LabelSetMeasure, IsThePrecisionOfTheSamplesOfAllRanks) {
  parallel::on_ranks(2, [](const Group& group) {
    const at::Tensor scores =
        at::tensor({0.9, 0.1, 0.5, 0.8, 0.7, 0.5, 0.7, 0.6, 0.2, 0.6, 0.6, 0.9, 0.5, 0.2, 0.1, 0.4, 0.9, 0.3},
                   at::kDouble)
            .reshape({6, 3});
    const at::Tensor labels =
        at::tensor({1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0}, at::kLong).reshape({6, 3}).to(at::kFloat);
    const int64_t begin = group->rank() == 0 ? 0 : 1, end = group->rank() == 0 ? 1 : 6;
    const std::unique_ptr<EvaluationMeasure> measure = measure_label_sets();
    EXPECT_TRUE(measure->has_labels());
    EXPECT_TRUE(static_cast<bool>(measure->loss())) << "of labels that are questions of their own";
    for (int evaluations = 0; evaluations < 2; ++evaluations) {
      train::Evaluation evaluation;
      measure->begin();
      measure->add(batch_of(labels.slice(0, begin, end)), scores.slice(0, begin, end));
      EXPECT_EQ(measure->finish(evaluation, group.get()), "");
      ASSERT_EQ(evaluation.more.size(), 1U);
      EXPECT_EQ(evaluation.more[0].first, "mean_average_precision");
      EXPECT_NEAR(evaluation.more[0].second, 0.6574074074074073, 1e-12) << evaluations;
    }
  });
}

PreparedRun run_of(Dialect dialect) {
  PreparedRun run;
  run.options.dialect = dialect;
  run.num_classes = 3;
  return run;
}

// The first is right, the second in the second place, the third in the third.
at::Tensor three_logits() {
  return at::tensor({3.0, 2.0, 1.0, 1.0, 2.0, 3.0, 3.0, 2.0, 1.0}, at::kDouble).reshape({3, 3}).to(at::kFloat);
}
at::Tensor three_labels() {
  return at::tensor({0, 1, 2}, at::kLong);
}

TEST(ClassMeasure, CountsThePredictionsOfAllRanks) {
  parallel::on_ranks(2, [](const Group& group) {
    PreparedRun run = run_of(Dialect::kTrainyard);
    run.options.top_k = {1, 2};
    run.options.calibration_bins = 7;
    run.options.most_wrong = 5;
    const std::unique_ptr<EvaluationMeasure> measure = measure_classes(run);
    EXPECT_EQ(measure->predictions(), nullptr);
    const int64_t begin = group->rank() == 0 ? 0 : 1, end = group->rank() == 0 ? 1 : 3;
    for (int evaluations = 0; evaluations < 2; ++evaluations) {
      train::Evaluation evaluation;  // has a top-1 accuracy
      measure->begin();
      measure->add(batch_of(three_labels().slice(0, begin, end)), three_logits().slice(0, begin, end));
      EXPECT_EQ(measure->finish(evaluation, group.get()), "");
      EXPECT_EQ(evaluation.more, (Numbers{{"top_2_accuracy", 2.0 / 3}}));
      ASSERT_NE(measure->predictions(), nullptr);
      EXPECT_EQ(measure->predictions()->images(), 3);
      EXPECT_EQ(measure->predictions()->right(), 1);
      EXPECT_EQ(measure->predictions()->confused(1, 2), 1);
      EXPECT_EQ(measure->predictions()->options().calibration_bins, 7);
      EXPECT_EQ(measure->predictions()->options().most_wrong, 0) << "images that have no names";
    }
  });
}

TEST(ClassMeasure, ExplainsABenchmarkOnlyOnRequest) {
  const auto counts = [](const PreparedRun& run) {
    const std::unique_ptr<EvaluationMeasure> measure = measure_classes(run);
    train::Evaluation evaluation;
    measure->begin();
    measure->add(batch_of(three_labels()), three_logits());
    EXPECT_EQ(measure->finish(evaluation, nullptr), "");
    EXPECT_THAT(evaluation.more, IsEmpty());
    return measure->predictions() != nullptr;
  };
  PreparedRun run = run_of(Dialect::kTfCnnBenchmarks);
  EXPECT_FALSE(counts(run));
  run.options.calibration_bins = 3;
  EXPECT_TRUE(counts(run));
  EXPECT_TRUE(counts(run_of(Dialect::kTrainyard)));
}

// A model whose results are told to the test, and changed as it asks.
class OwnModel : public BenchmarkModel {
 public:
  std::string name() const override { return "own"; }
  InputShapes get_input_shapes(data::Subset) const override { return {{"images", {3, 4, 4}}, {"labels", {}}}; }
  nn::Graph build_network(const models::ModelOptions&) const override { return {}; }
  core::NamedTensors accuracy_function(const at::Tensor&, const at::Tensor& labels) const override {
    core::NamedTensors results;
    results.set("simple_value:mean_label", labels.to(at::kDouble).mean());
    results.set("own_number", labels.to(at::kDouble).mean());
    results.set("tensor:labels", labels);
    return results;
  }
  void postprocess(EvaluationResults& results) override {
    seen = results;
    if (top_1) results.numbers["top_1_accuracy"] = *top_1;
    if (forgets_top_5) results.numbers.erase("top_5_accuracy");
  }
  EvaluationResults seen;
  std::optional<double> top_1;
  bool forgets_top_5 = false;
};

TEST(OwnModelMeasure, WeighsBatchesByTheirSamplesAndTakesWhatTheModelMakesOfIt) {
  const auto model = std::make_shared<OwnModel>();
  PreparedRun run;
  run.own.model = model;
  const std::unique_ptr<EvaluationMeasure> measure = measure_own_model(run);
  EXPECT_FALSE(static_cast<bool>(measure->loss())) << "the model has none of its own";
  train::Evaluation evaluation;
  evaluation.top_1 = 0.25;
  evaluation.top_5 = 0.5;
  measure->begin();
  measure->add(batch_of(at::full({1}, 0, at::kLong)), at::full({1, 3}, 0.0));
  measure->add(batch_of(at::full({3}, 2, at::kLong)), at::full({3, 3}, 0.0));
  EXPECT_EQ(measure->finish(evaluation, nullptr), "");
  EXPECT_EQ(evaluation.more, (Numbers{{"mean_label", 1.5}}));
  EXPECT_EQ(model->seen.numbers.at("own_number"), 1.5);
  EXPECT_EQ(model->seen.numbers.at("top_1_accuracy"), 0.25);
  EXPECT_EQ(model->seen.numbers.at("top_5_accuracy"), 0.5);
  EXPECT_EQ(model->seen.tensors["tensor:labels"].size(0), 4);
  EXPECT_TRUE(evaluation.has_accuracies && evaluation.shows_top_5);

  model->top_1 = 0.75;
  model->forgets_top_5 = true;
  evaluation.more.clear();
  measure->begin();
  measure->add(batch_of(at::full({2}, 1, at::kLong)), at::full({2, 3}, 0.0));
  measure->finish(evaluation, nullptr);
  EXPECT_EQ(evaluation.more, (Numbers{{"mean_label", 1.0}})) << "the first evaluation is forgotten";
  EXPECT_EQ(model->seen.tensors["tensor:labels"].size(0), 2);
  EXPECT_EQ(evaluation.top_1, 0.75);
  EXPECT_TRUE(evaluation.has_accuracies);
  EXPECT_FALSE(evaluation.shows_top_5);

  train::Evaluation without;
  without.has_accuracies = false;
  model->top_1.reset();
  measure->begin();
  measure->add(batch_of(at::full({2}, 1, at::kLong)), at::full({2, 3}, 0.0));
  measure->finish(without, nullptr);
  EXPECT_FALSE(model->seen.numbers.contains("top_1_accuracy"));
  EXPECT_FALSE(without.has_accuracies);
}

}  // namespace
}  // namespace trainyard::frontends::evaluation_measure_test
