// Writes MLPerf's lines of a run, from its settings to its end. tf_cnn_benchmarks writes most of them while it builds
// its graph; here they are written in the same order, before the steps.
//
//   ComplianceRun lines(log, facts);
//   lines.begin_training();
//   lines.begin_evaluations();       // in a training that evaluates
//   lines.enter_loop(global_step);   // each step: note_rate(); each evaluation: begin_evaluation(), end_evaluation()
//   lines.leave_loop(global_step);
//   lines.end(success);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trainyard/data/augment/transform.h"
#include "trainyard/frontends/tf_cnn/mlperf/compliance_log.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::frontends {

struct ComplianceFacts {
  nn::Graph graph{};
  uint64_t seed = 0;
  int64_t batch_size = 0, batch_norm_span = 0;          // images of a global step, and that a batch norm sees
  int64_t train_examples = 0, validation_examples = 0;  // of an epoch
  std::optional<data::TransformOptions> images{};       // of training; unset: synthetic, or a custom data set
  int64_t shuffle_buffer = 0;                           // samples
  bool channels_last = false;                           // shapes are written as [H, W, C]
  bool updates = true;                                  // false: forward passes only
  bool detector = false;                                // the model is ssd300
  bool own_loss = false;                                // another loss than cross-entropy
  std::string optimizer = "sgd";
  double momentum = 0, weight_decay = 0;
  int64_t warmup_steps = 0;                   // of the learning rate
  std::optional<double> eval_target{};        // accuracy at which the training stops
  std::optional<double> eval_epoch_offset{};  // epochs before the first evaluation, minus one
};

// One thread at a time.
class ComplianceRun {
 public:
  ComplianceRun(std::shared_ptr<const ComplianceLog> log, ComplianceFacts facts);

  // Writes the training's input, its model and its optimizer.
  void begin_training();
  // Writes the evaluations' input, and the model once more.
  void begin_evaluations();

  void enter_loop(int64_t global_step);
  // Writes the rate of each hundredth step. Call it after the step.
  void note_rate(int64_t global_step, double learning_rate);
  // Writes the epochs since the last evaluation, and that an evaluation begins.
  void begin_evaluation_in_loop(int64_t global_step);
  void begin_evaluation(int64_t global_step);
  // Writes the end of an evaluation of `samples` images. `accuracy` is their top-1 accuracy, of a detector COCO's AP,
  // if it is known.
  void end_evaluation(int64_t samples, std::optional<double> accuracy, int64_t global_step);
  // Writes the accuracy of an evaluation after that step.
  void write_accuracy(double accuracy, int64_t global_step);
  // Writes the steps since the last evaluation, if any, and their epochs.
  void leave_loop(int64_t global_step);
  // Writes all of these for a run with nothing left to do.
  void write_empty_loop(int64_t global_step);
  // Writes the last two lines. `success` says that the training reached its target.
  void end(bool success);

 private:
  void write_images(const data::TransformOptions& images);
  void write_evaluation_images(const data::TransformOptions& images);
  void write_mean(const data::TransformOptions& images);
  void write_optimizer();
  void write_trained(int64_t global_step);
  // Returns the epoch of the step, which a detector's evaluations begin and end with; else nothing.
  std::string epoch_of_evaluation(int64_t global_step) const;

  std::shared_ptr<const ComplianceLog> log_;
  ComplianceFacts facts_;
  int64_t last_evaluated_ = -1;  // global step; -1: outside of the loop
};

}  // namespace trainyard::frontends
