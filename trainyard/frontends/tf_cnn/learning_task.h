// What the model of a run learns: the class of an image, any number of its labels, the objects in it, or what the
// caller's own model says. All in which these differ is asked of the run's task: the loss, what evaluations measure,
// synthetic batches, and which options do not go with it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/frontends/input/image_source.h"
#include "trainyard/frontends/tf_cnn/evaluation_measure.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/train/step/graph_tower.h"

namespace trainyard::frontends {

class LearningTask {
 public:
  virtual ~LearningTask() = default;

  // Returns the loss of a training.
  [[nodiscard]] virtual train::LossModule loss(const PreparedRun& run) const = 0;
  // Returns what the run's evaluations measure.
  [[nodiscard]] virtual std::unique_ptr<EvaluationMeasure> make_measure(const PreparedRun& run) const = 0;
  // Returns false when a batch's outputs are not logits that its "labels" can be compared with: then steps have no
  // accuracies.
  [[nodiscard]] virtual bool has_step_accuracies() const { return true; }
  // Returns the value of --keep_best that the run has where top_1 is asked for.
  [[nodiscard]] virtual std::string best_metric() const { return "top_1"; }
  // Returns the source of synthetic batches; null: images and labels of classes.
  [[nodiscard]] virtual std::shared_ptr<data::BatchSource> synthetic_source(const PreparedRun& /*run*/,
                                                                            const ImageSourceOptions&) const {
    return nullptr;
  }
  // Throws kUnsupported or kInvalidArgument for options of the run that do not go with the task.
  virtual void check_options(const PreparedRun& /*run*/) const {}
};

// Returns the task of the run, whose model and data are known. Synthetic data of COCO are boxes.
const LearningTask& task_of(const PreparedRun& run);

// Returns the task of models that find COCO's objects.
const LearningTask& detection_task();
// Returns the task of classifiers on COCO's batches, of which tf_cnn_benchmarks has one, trivial: it measures the input
// alone, and takes the number of matched default boxes for the label.
const LearningTask& matched_boxes_task();

// Throws kUnsupported where `given`: "FLAG is for images of one label", or of `kind`.
void refuse_option(const PreparedRun& run, bool given, const std::string& flag, const std::string& kind);

// Throws kInvalidArgument where a training is to compare its evaluations, which are of `kind`, by a number that is none
// of `names`: its first evaluation would end it.
void check_compared_numbers(const PreparedRun& run, const std::vector<std::string>& names, const std::string& kind);

}  // namespace trainyard::frontends
