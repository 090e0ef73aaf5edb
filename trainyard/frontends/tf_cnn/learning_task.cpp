#include "trainyard/frontends/tf_cnn/learning_task.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/data/datasets/sample_labels.h"
#include "trainyard/frontends/input/dataset_choice.h"
#include "trainyard/frontends/tf_cnn/run_state.h"

namespace trainyard::frontends {
namespace {

// Returns the weights of the classes in the loss, [outputs] float; undefined where they are 1.
at::Tensor class_weights(const PreparedRun& run) {
  if (run.options.loss.class_weights == "none" || run.train_labels == nullptr) return {};
  const int64_t offset = label_offset(*run.train_data, models::find_dataset(run.input.dataset), run.num_classes);
  const std::vector<double> weights =
      data::balanced_class_weights(data::class_counts(*run.train_labels, offset, run.num_classes));
  return at::tensor(weights, at::kFloat);
}

class ClassificationTask : public LearningTask {
 public:
  train::LossModule loss(const PreparedRun& run) const override {
    const LossOptions& asked = run.options.loss;
    if (asked.loss == "bce") {
      return train::binary_classifier_loss({.label_smoothing = asked.label_smoothing,
                                            .target_threshold = asked.bce_target_threshold,
                                            .sum_classes = asked.bce_sum,
                                            .class_weights = class_weights(run)});
    }
    return train::classifier_loss({.label_smoothing = asked.label_smoothing, .class_weights = class_weights(run)});
  }
  std::unique_ptr<EvaluationMeasure> make_measure(const PreparedRun& run) const override {
    return measure_classes(run);
  }
  void check_options(const PreparedRun& run) const override {
    // Without those of --tta, which the last evaluation alone has.
    std::vector<std::string> names = {"loss", "top_1_accuracy", "top_5_accuracy", "mean_class_accuracy"};
    for (const int64_t k : run.options.top_k) names.push_back(fmt::format("top_{}_accuracy", k));
    check_compared_numbers(run, names, "images of one label");
  }
};

class LabelSetTask : public LearningTask {
 public:
  train::LossModule loss(const PreparedRun&) const override { return train::label_set_loss(); }
  std::unique_ptr<EvaluationMeasure> make_measure(const PreparedRun&) const override { return measure_label_sets(); }
  std::string best_metric() const override { return "mean_average_precision"; }
  void check_options(const PreparedRun& run) const override {
    const TfCnnOptions& options = run.options;
    const auto refuse_if = [&](bool given, const char* flag) {
      refuse_option(run, given, flag, "images of one label");
    };
    refuse_if(run.input.mix.enabled(), "--mixup_alpha or --cutmix_alpha");
    refuse_if(options.loss.label_smoothing > 0, "--label_smoothing");
    refuse_if(options.loss.loss != "softmax", "--loss");
    refuse_if(options.display.print_training_accuracy, "--print_training_accuracy");
    refuse_if(options.stop_at_top_1_accuracy.value_or(0) != 0, "--stop_at_top_1_accuracy");
    refuse_if(!options.distillation.from.empty(), "--distill_from");
    refuse_if(options.explains_on_request(), "--top_k, --calibration_bins or --most_wrong");
    refuse_if(options.tta != train::TestTimeAugmentation::kNone, "--tta");
    refuse_if(run.input.repeat_cached_sample, "--datasets_repeat_cached_sample");
    check_compared_numbers(run, {"mean_average_precision", "loss"}, "images with any number of labels");
  }
};

class OwnModelTask : public ClassificationTask {
 public:
  train::LossModule loss(const PreparedRun& run) const override {
    const train::LossFunction own = run.own.model->loss_function();
    return own ? train::loss_of(own) : ClassificationTask::loss(run);
  }
  std::unique_ptr<EvaluationMeasure> make_measure(const PreparedRun& run) const override {
    return measure_own_model(run);
  }
  void check_options(const PreparedRun&) const override {}  // the model names the numbers of its evaluations
};

}  // namespace

void check_compared_numbers(const PreparedRun& run, const std::vector<std::string>& names, const std::string& kind) {
  if (!run.trains()) return;
  const std::array<std::pair<const char*, const std::string*>, 2> asked = {
      {{"keep_best", &run.options.saving.keep_best}, {"early_stop_metric", &run.options.early_stop_metric}}};
  for (const auto& [flag, text] : asked) {
    if (text->empty() || *text == "top_1") continue;  // the task's own number
    const std::optional<train::BestBy> by = read_best_by(*text, flag);
    if (!by || std::find(names.begin(), names.end(), by->name) != names.end()) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = fmt::format("evaluations of {} have no number of this name to compare them by", kind),
                       .where = fmt::format("--{}", flag),
                       .expected = fmt::format("{}", fmt::join(names, ", ")),
                       .actual = *text,
                       .remedy = "name one of these, or leave it out"});
  }
}

void refuse_option(const PreparedRun& run, bool given, const std::string& flag, const std::string& kind) {
  if (!given) return;
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = flag + " is for " + kind,
                     .where = run.input.labels_csv.empty() ? run.model->name : run.input.labels_csv,
                     .actual = run.label_sets() ? "any number of labels an image" : "boxes of objects in images",
                     .remedy = "leave it out"});
}

const LearningTask& task_of(const PreparedRun& run) {
  static const ClassificationTask classification;
  static const LabelSetTask label_sets;
  static const OwnModelTask own_model;
  if (run.own.model != nullptr) return own_model;
  if (run.model->task == models::Task::kDetection) return detection_task();
  if (run.own.dataset == nullptr && run.model->family == models::DatasetFamily::kCoco) return matched_boxes_task();
  if (run.label_sets()) return label_sets;
  return classification;
}

}  // namespace trainyard::frontends
