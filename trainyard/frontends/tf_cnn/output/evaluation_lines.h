// The lines of evaluations during a training, as tf_cnn_benchmarks prints them, because scripts read them.
//
//   Running evaluation at global_step 10
//   Accuracy @ 1 = 0.1000 Accuracy @ 5 = 1.0000 [1000 examples]
//   Resuming training
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/frontends/tf_cnn/output/step_log.h"
#include "trainyard/train/callbacks/evaluation_callback.h"

namespace trainyard::frontends {

class EvaluationLines : public train::EvaluationListener {
 public:
  explicit EvaluationLines(Print print) : print_(std::move(print)) {}

  void on_begin(train::EvaluationTime time, int64_t global_step) override;
  void on_result(const train::Evaluation& evaluation, int64_t global_step) override;
  void on_resume() override;
  void on_goal(const std::string& reason) override;
  void on_training_end() override;

 private:
  Print print_;
};

// The number of a detector's evaluation that stands for the others: COCO's mean average precision.
inline constexpr const char* kCocoAp = "COCO/AP";

// The top-1 accuracy with test-time augmentation, among Evaluation::more of the evaluation at a training's end.
inline constexpr const char* kTtaTop1 = "tta_top_1_accuracy";

// Returns the line of an evaluation's result: its accuracies, or, of images with several labels, "Mean average
// precision = 0.8123 [1000 examples]". Of a detector it is the line of accuracies with COCO's AP in place of the top-1
// accuracy and 0 in place of the other, as tf_cnn_benchmarks prints it, and empty as long as that is not known.
[[nodiscard]] std::string result_line(const train::Evaluation& evaluation);

// Returns the number that --stop_at_top_1_accuracy looks at: the top-1 accuracy, of a detector COCO's AP. Nothing where
// the evaluation has neither.
[[nodiscard]] std::optional<double> compared_accuracy(const train::Evaluation& evaluation);

// Returns the numbers of an evaluation that logs and summaries of a run have: one or both accuracies and the top-1
// accuracy with test-time augmentation, or the mean average precision, or of a detector COCO/AP and COCO/AP50.
[[nodiscard]] std::vector<std::pair<std::string, double>> main_numbers(const train::Evaluation& evaluation);

// Returns a function that ends a training at a compared_accuracy() of `goal` or more, with tf_cnn_benchmarks' message.
// Throws kInvalidArgument for a goal outside of [0, 1].
std::function<std::optional<std::string>(const train::Evaluation&)> stop_at_top_1_accuracy(double goal);

}  // namespace trainyard::frontends
