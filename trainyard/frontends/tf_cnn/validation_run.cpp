#include "trainyard/frontends/tf_cnn/validation_run.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/frontends/tf_cnn/output/step_lines.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/train/session/rank_evaluation.h"

namespace trainyard::frontends {
namespace {

// A run has one of them, or none: a custom model's outputs are its own matter.
std::function<void(const data::Batch&, const at::Tensor&)> on_output(ResultCollector* collector,
                                                                     train::PredictionCounts* counts,
                                                                     train::MeanAveragePrecision* precision) {
  if (counts != nullptr) {
    return [counts](const data::Batch& batch, const at::Tensor& output) {
      counts->add(output, batch.labels(), batch.sample_indices);
    };
  }
  if (precision != nullptr) {
    return [precision](const data::Batch& batch, const at::Tensor& output) {
      precision->update({.outputs = {{"logits", output}}, .labels = batch.labels()});
    };
  }
  if (collector == nullptr) return {};
  return [collector](const data::Batch& batch, const at::Tensor& output) { collector->add(output, batch.labels()); };
}

std::unique_ptr<train::PredictionCounts> make_counts(const PreparedRun& run) {
  if (!run.explains_evaluation()) return nullptr;
  train::PredictionCountsOptions options{.classes = run.num_classes, .top_k = run.options.top_k};
  options.calibration_bins = run.options.calibration_bins.value_or(options.calibration_bins);
  options.most_wrong = run.validation_data == nullptr ? 0 : run.options.most_wrong.value_or(options.most_wrong);
  return std::make_unique<train::PredictionCounts>(std::move(options));
}

// Empty: softmax cross-entropy.
train::LossFunction loss_of_evaluation(const PreparedRun& run) {
  if (run.label_sets()) return nn::sigmoid_cross_entropy;
  return run.own.model == nullptr ? train::LossFunction() : run.own.model->loss_function();
}

}  // namespace

ValidationRun::ValidationRun(const PreparedRun& run, nn::ParameterSet& parameters, int64_t display_every, Print print,
                             std::function<void(int64_t, int64_t)> progress, const core::StopToken& stop)
    : batches_(run.plan.num_eval_batches),
      display_every_(std::max<int64_t>(1, display_every)),
      shows_top_5_(run.shows_top_5()),
      ranks_(run.device.processes),
      shares_(run.shares_evaluation()),
      print_(std::move(print)),
      progress_(std::move(progress)),
      own_model_(run.own.model),
      collector_(own_model_ == nullptr ? nullptr : std::make_unique<ResultCollector>(*own_model_)),
      counts_(make_counts(run)),
      precision_(run.label_sets() ? std::make_unique<train::MeanAveragePrecision>() : nullptr),
      source_(make_source(run, data::Subset::kValidation)),
      evaluator_({.graph = run.graph,
                  .devices = run.device,
                  .loss = loss_of_evaluation(run),
                  .stops = [stop] { return stop.stop_requested(); },
                  .on_output = on_output(collector_.get(), counts_.get(), precision_.get()),
                  .replicas = train::replica_thread_options(run.eval_replicas(), run.threads.intra_op_threads,
                                                            run.threads.replica),
                  .views = run.options.tta},
                 parameters) {}

void ValidationRun::postprocess(train::Evaluation& evaluation) const {
  if (own_model_ == nullptr) return;
  constexpr std::string_view kSimpleValue = "simple_value:";
  EvaluationResults results = collector_->results();
  if (evaluation.has_accuracies) {
    results.numbers["top_1_accuracy"] = evaluation.top_1;
    results.numbers["top_5_accuracy"] = evaluation.top_5;
  }
  own_model_->postprocess(results);
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
}

void ValidationRun::explain(train::Evaluation& evaluation) {
  if (counts_ == nullptr) return;
  if (ranks_ != nullptr && shares_) counts_->add_other_ranks(*ranks_);
  explained_ = *counts_;
  for (const auto& [name, value] : explained_->top_k_accuracies()) {
    if (!train::value_of(evaluation, name)) evaluation.more.emplace_back(name, value);
  }
}

void ValidationRun::add_precision(train::Evaluation& evaluation) {
  if (precision_ == nullptr) return;
  if (ranks_ != nullptr && shares_) {
    train::MeanAveragePrecision all;
    for (const std::string& text : ranks_->gather("the scores of an evaluation", precision_->samples_text())) {
      all.add_samples_text(text);
    }
    *precision_ = std::move(all);
  }
  for (auto& result : precision_->results()) evaluation.more.push_back(std::move(result));
}

train::Evaluation ValidationRun::run_part(int64_t batches) {
  return train::evaluate_over_ranks(
      ranks_.get(), [&] { return evaluator_.run(*source_, batches, /*may_be_empty=*/ranks_ != nullptr); }, shares_);
}

train::Evaluation ValidationRun::run() {
  core::apply_team_affinity();
  source_->seek({});
  if (collector_ != nullptr) collector_->clear();
  if (counts_ != nullptr) counts_->clear();
  if (precision_ != nullptr) precision_->begin();
  train::Evaluation all{.shows_top_5 = shows_top_5_};
  for (int64_t done = 0; done < batches_;) {
    if (progress_) progress_(done, batches_);
    const int64_t count = std::min(display_every_, batches_ - done);
    const train::Evaluation part = run_part(count);
    train::add_samples(part, all);
    all.seconds += part.seconds;
    all.input_seconds += part.input_seconds;
    done += count;
    if (count == display_every_) {
      print_(evaluation_step_line(done, static_cast<double>(part.samples) / part.seconds));
    }
  }
  postprocess(all);
  explain(all);
  add_precision(all);
  if (source_->bad_samples() > 0) {
    core::log::warning("{} bad samples in the evaluation's data; {} images were evaluated", source_->bad_samples(),
                       all.samples);
  }
  if (all.not_finite > 0 || !std::isfinite(all.loss)) {
    core::log::warning(
        "the evaluation's loss is {}: the model's outputs for {} of {} images are not finite, which counts "
        "as wrong",
        std::isnan(all.loss) ? "NaN" : fmt::format("{}", all.loss), all.not_finite, all.samples);
  }
  return all;
}

}  // namespace trainyard::frontends
