// What an evaluation of a run measures of the model's outputs: one class for each kind of models, which learning_task.h
// chooses. ValidationRun (validation_run.h) calls it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/evaluation/prediction_counts.h"
#include "trainyard/train/step/graph_tower.h"

namespace trainyard::frontends {

struct PreparedRun;

// Numbers of an evaluation that became known while the training continued.
struct LateNumbers {
  int64_t evaluation = 0;  // of the measure, from 0
  std::vector<std::pair<std::string, double>> values{};
  std::string lines{};  // for people, without the last line break
};

// One thread at a time.
class EvaluationMeasure {
 public:
  virtual ~EvaluationMeasure() = default;

  // Returns false when the evaluation's batches have no labels: then there is neither a loss nor an accuracy.
  [[nodiscard]] virtual bool has_labels() const { return true; }
  // Returns the loss; empty: softmax cross-entropy.
  [[nodiscard]] virtual train::LossFunction loss() const { return {}; }

  // Forgets what was added.
  virtual void begin() = 0;
  // Adds a batch and the model's output, whose memory is reused afterwards.
  virtual void add(const data::Batch& batch, const at::Tensor& output) = 0;
  // Completes an evaluation's numbers, and returns lines to print, without the last line break. Collective over `ranks`
  // where that is not null: each has added its share of the samples, and all get the same numbers.
  virtual std::string finish(train::Evaluation& evaluation, parallel::ProcessGroup* ranks) = 0;

  // Returns what the last complete evaluation predicted, over all ranks; null before it, and for models that it is not
  // counted of.
  [[nodiscard]] virtual const train::PredictionCounts* predictions() const { return nullptr; }
  // Returns the numbers that finish() left out because they are still being computed, as far as they have become known,
  // in the order of the evaluations. With `wait`, blocks until all are. Throws what computing them threw.
  [[nodiscard]] virtual std::vector<LateNumbers> take_late_numbers(bool /*wait*/) { return {}; }
};

// Measures loss and accuracies, and counts predictions where the run explains its evaluations. `run` is not kept.
std::unique_ptr<EvaluationMeasure> measure_classes(const PreparedRun& run);
// Measures the mean average precision of images that have any number of labels.
std::unique_ptr<EvaluationMeasure> measure_label_sets();
// Measures what the caller's own model says of its outputs. The model must outlive the measure.
std::unique_ptr<EvaluationMeasure> measure_own_model(const PreparedRun& run);

}  // namespace trainyard::frontends
