#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/data/cache/dataset_decorator.h"
#include "trainyard/data/detection/coco_dataset.h"
#include "trainyard/data/detection/coco_labels.h"
#include "trainyard/data/detection/default_boxes.h"
#include "trainyard/frontends/input/synthetic_boxes.h"
#include "trainyard/frontends/tf_cnn/detection_measure.h"
#include "trainyard/frontends/tf_cnn/learning_task.h"
#include "trainyard/frontends/tf_cnn/output/evaluation_lines.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/train/evaluation/detection/coco_metric.h"

namespace trainyard::frontends {
namespace {

std::shared_ptr<data::BatchSource> synthetic_boxes(const PreparedRun& run, const ImageSourceOptions& source) {
  return make_synthetic_boxes({.height = run.input.transform.height,
                               .width = run.input.transform.width,
                               .default_boxes = data::DefaultBoxes::ssd300().size(),
                               .seed = run.input.seed},
                              source);
}

// Returns the data set below its caches; null for another one.
const data::CocoDataset* coco_of(const data::Dataset* dataset) {
  while (const auto* cache = dynamic_cast<const data::DatasetDecorator*>(dataset)) dataset = &cache->source();
  return dynamic_cast<const data::CocoDataset*>(dataset);
}

// Throws for options of images that have one label each.
void refuse_options_of_labels(const PreparedRun& run) {
  const TfCnnOptions& options = run.options;
  const InputOptions& input = options.input;
  const auto refuse_if = [&](bool given, const char* flag) { refuse_option(run, given, flag, "images of one label"); };
  refuse_if(run.input.mix.enabled(), "--mixup_alpha or --cutmix_alpha");
  refuse_if(options.loss.label_smoothing > 0, "--label_smoothing");
  refuse_if(options.loss.loss != "softmax", "--loss");
  refuse_if(options.loss.class_weights != "none", "--class_weights");
  refuse_if(run.input.balanced_sampling, "--balanced_sampling");
  refuse_if(run.input.repeated_augmentation > 1, "--repeated_augmentation");
  refuse_if(!run.input.epoch_sizes.empty(), "--progressive_sizes");
  refuse_if(!input.labels_csv.empty(), "--labels_csv");
  refuse_if(run.input.division.has_value(), "--validation_split or --folds");
  refuse_if(run.input.decode_on_gpu, "--dali_mode=GPU");
  refuse_if(options.display.print_training_accuracy, "--print_training_accuracy");
  refuse_if(!options.distillation.from.empty(), "--distill_from");
  refuse_if(options.explains_on_request(), "--top_k, --calibration_bins or --most_wrong");
  refuse_if(options.tta != train::TestTimeAugmentation::kNone, "--tta");
}

class DetectionTask : public LearningTask {
 public:
  train::LossModule loss(const PreparedRun&) const override { return train::detection_loss(); }
  bool has_step_accuracies() const override { return false; }
  std::string best_metric() const override { return kCocoAp; }
  std::shared_ptr<data::BatchSource> synthetic_source(const PreparedRun& run,
                                                      const ImageSourceOptions& source) const override {
    return synthetic_boxes(run, source);
  }

  std::unique_ptr<EvaluationMeasure> make_measure(const PreparedRun& run) const override {
    const data::CocoDataset* const data = coco_of(run.validation_data.get());
    if (data == nullptr) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "an evaluation of a detector needs images with boxes",
                         .where = run.model->name,
                         .expected = "COCO's validation images",
                         .actual = run.synthetic() ? "synthetic images" : run.input.data_dir,
                         .remedy = "pass --data_dir"});
    }
    // Evaluations see the images in the order of the data.
    const int64_t batch = run.eval_batch_size * run.replicas * (run.shares_evaluation() ? run.device.ranks() : 1);
    const int64_t images = std::min(data->size(), run.plan.num_eval_batches * batch);
    std::vector<int64_t> image_ids;  // of the samples; nothing says that of a record that cannot be parsed
    for (int64_t sample = 0; sample < data->size(); ++sample) {
      if (!data->unreadable(sample)) image_ids.push_back(data->image(sample).id);
    }
    data::CocoAnnotations annotations = data->annotations();
    if (images < data->size()) annotations = annotations_of_images(std::move(annotations), image_ids);
    const std::shared_ptr<const data::Dataset> kept = run.validation_data;
    return measure_detections(
        {.annotations = std::move(annotations),
         .image = [data, kept](int64_t sample) { return data->image(sample); },
         .images = images,
         .all_images = data->size(),
         .default_boxes = &data::DefaultBoxes::ssd300(),
         .detection = {.counted_if_added = std::move(image_ids)},
         .asynchronous = run.options.collect_eval_results_async && run.mode() == RunMode::kTrainingAndEvaluation});
  }

  void check_options(const PreparedRun& run) const override {
    refuse_options_of_labels(run);
    const TfCnnOptions& options = run.options;
    const auto refuse = [](bool holds, std::string problem, std::string remedy) {
      if (!holds) return;
      throw core::Error(core::ErrorCode::kUnsupported, {.problem = std::move(problem), .remedy = std::move(remedy)});
    };
    refuse(run.model->equals.starts_with("torchvision"),
           fmt::format("{} has torchvision's default boxes, and training is for those of ssd300", run.model->name),
           "train --model=ssd300; `trainyard predict` runs published weights");
    refuse(options.num_classes.value_or(data::kCocoLabels) != data::kCocoLabels,
           fmt::format("{} has {} outputs a box, of COCO's categories and the background", run.model->name,
                       data::kCocoLabels),
           "leave --num_classes out");
    const nn::Size2d size = options.image_size;
    refuse(size != nn::Size2d(0) && size != nn::Size2d(run.model->image_size),
           fmt::format("{} is for images of {}, for which its default boxes are", run.model->name,
                       models::image_size_text(run.model->image_size)),
           "leave --image_size out");
    std::vector<std::string> numbers;
    for (const std::string_view name : train::CocoMetric::kNames) numbers.push_back(fmt::format("COCO/{}", name));
    check_compared_numbers(run, numbers, "a detector");
    if (!options.collect_eval_results_async) return;
    refuse(options.device.many_processes(), "--collect_eval_results_async is for one process", "leave it out");
    refuse(options.early_stop.has_value(),
           "--early_stop compares evaluations at once, and --collect_eval_results_async has their numbers later",
           "leave one of them out");
  }
};

// The networks of classes have one output a class; what they learn here is of no use.
class MatchedBoxesTask : public LearningTask {
 public:
  train::LossModule loss(const PreparedRun& run) const override {
    return [classes = run.num_classes](train::TowerContext&) -> train::Loss {
      return [classes](const train::LossInput& in) {
        const at::Tensor labels = in.batch["num_matched"].clamp_max(classes - 1);
        return train::weighted_sum(in,
                                   [&](const at::Tensor& output) { return nn::softmax_cross_entropy(output, labels); });
      };
    };
  }
  bool has_step_accuracies() const override { return false; }
  std::shared_ptr<data::BatchSource> synthetic_source(const PreparedRun& run,
                                                      const ImageSourceOptions& source) const override {
    return synthetic_boxes(run, source);
  }
  std::unique_ptr<EvaluationMeasure> make_measure(const PreparedRun& run) const override {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = fmt::format("{} detects nothing that could be evaluated", run.model->name),
                       .where = "data set coco",
                       .expected = "a training, or forward passes",
                       .remedy = "pass --model=ssd300, or another data set"});
  }
  void check_options(const PreparedRun& run) const override {
    refuse_options_of_labels(run);
    const bool evaluates = run.mode() == RunMode::kEvaluation || run.mode() == RunMode::kTrainingAndEvaluation;
    if (evaluates) static_cast<void>(make_measure(run));
  }
};

}  // namespace

const LearningTask& detection_task() {
  static const DetectionTask task;
  return task;
}

const LearningTask& matched_boxes_task() {
  static const MatchedBoxesTask task;
  return task;
}

}  // namespace trainyard::frontends
