#include "trainyard/frontends/tf_cnn/evaluation_measure.h"

#include <string_view>

#include "trainyard/frontends/tf_cnn/own_model.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/train/evaluation/mean_average_precision.h"

namespace trainyard::frontends {
namespace {

class ClassMeasure : public EvaluationMeasure {
 public:
  explicit ClassMeasure(const PreparedRun& run) {
    if (!run.explains_evaluation()) return;
    train::PredictionCountsOptions options{.classes = run.num_classes, .top_k = run.options.top_k};
    options.calibration_bins = run.options.calibration_bins.value_or(options.calibration_bins);
    options.most_wrong = run.validation_data == nullptr ? 0 : run.options.most_wrong.value_or(options.most_wrong);
    counts_ = std::make_unique<train::PredictionCounts>(std::move(options));
  }

  void begin() override {
    if (counts_ != nullptr) counts_->clear();
  }
  void add(const data::Batch& batch, const at::Tensor& output) override {
    if (counts_ != nullptr) counts_->add(output, batch.labels(), batch.sample_indices);
  }
  std::string finish(train::Evaluation& evaluation, parallel::ProcessGroup* ranks) override {
    if (counts_ == nullptr) return "";
    if (ranks != nullptr) counts_->add_other_ranks(*ranks);
    complete_ = *counts_;
    for (const auto& [name, value] : complete_->top_k_accuracies()) {
      if (!train::value_of(evaluation, name)) evaluation.more.emplace_back(name, value);
    }
    return "";
  }
  const train::PredictionCounts* predictions() const override { return complete_ ? &*complete_ : nullptr; }

 private:
  std::unique_ptr<train::PredictionCounts> counts_;  // null: evaluations are not explained
  std::optional<train::PredictionCounts> complete_;
};

class LabelSetMeasure : public EvaluationMeasure {
 public:
  train::LossFunction loss() const override { return nn::sigmoid_cross_entropy; }
  void begin() override { precision_.begin(); }
  void add(const data::Batch& batch, const at::Tensor& output) override {
    precision_.update({.outputs = {{"logits", output}}, .labels = batch.labels()});
  }
  std::string finish(train::Evaluation& evaluation, parallel::ProcessGroup* ranks) override {
    if (ranks != nullptr) {
      train::MeanAveragePrecision all;
      for (const std::string& text : ranks->gather("the scores of an evaluation", precision_.samples_text())) {
        all.add_samples_text(text);
      }
      precision_ = std::move(all);
    }
    for (auto& result : precision_.results()) evaluation.more.push_back(std::move(result));
    return "";
  }

 private:
  train::MeanAveragePrecision precision_;
};

class OwnModelMeasure : public EvaluationMeasure {
 public:
  explicit OwnModelMeasure(std::shared_ptr<BenchmarkModel> model) : model_(std::move(model)), collector_(*model_) {}

  train::LossFunction loss() const override { return model_->loss_function(); }
  void begin() override { collector_.clear(); }
  void add(const data::Batch& batch, const at::Tensor& output) override { collector_.add(output, batch.labels()); }
  // Passes the results to the model, which may change them.
  std::string finish(train::Evaluation& evaluation, parallel::ProcessGroup*) override {
    constexpr std::string_view kSimpleValue = "simple_value:";
    EvaluationResults results = collector_.results();
    if (evaluation.has_accuracies) {
      results.numbers["top_1_accuracy"] = evaluation.top_1;
      results.numbers["top_5_accuracy"] = evaluation.top_5;
    }
    model_->postprocess(results);
    const auto take = [&results](const char* name, double& value) {
      const auto found = results.numbers.find(name);
      if (found == results.numbers.end()) return false;
      value = found->second;
      return true;
    };
    evaluation.has_accuracies = take("top_1_accuracy", evaluation.top_1);
    evaluation.shows_top_5 = take("top_5_accuracy", evaluation.top_5) && evaluation.shows_top_5;
    for (const auto& [name, value] : results.numbers) {
      if (name.starts_with(kSimpleValue)) evaluation.more.emplace_back(name.substr(kSimpleValue.size()), value);
    }
    return "";
  }

 private:
  std::shared_ptr<BenchmarkModel> model_;
  ResultCollector collector_;
};

}  // namespace

std::unique_ptr<EvaluationMeasure> measure_classes(const PreparedRun& run) {
  return std::make_unique<ClassMeasure>(run);
}

std::unique_ptr<EvaluationMeasure> measure_label_sets() {
  return std::make_unique<LabelSetMeasure>();
}

std::unique_ptr<EvaluationMeasure> measure_own_model(const PreparedRun& run) {
  return std::make_unique<OwnModelMeasure>(run.own.model);
}

}  // namespace trainyard::frontends
