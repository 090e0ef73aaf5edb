#include "trainyard/frontends/tf_cnn/output/evaluation_lines.h"

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::frontends {

void EvaluationLines::on_begin(train::EvaluationTime time, int64_t global_step) {
  const char* const which = time == train::EvaluationTime::kAtTheEnd ? "final evaluation" : "evaluation";
  print_(fmt::format("Running {} at global_step {}", which, global_step));
}

void EvaluationLines::on_result(const train::Evaluation& evaluation, int64_t) {
  if (const std::string line = result_line(evaluation); !line.empty()) print_(line);
}

void EvaluationLines::on_resume() {
  print_("Resuming training");
}

void EvaluationLines::on_goal(const std::string& reason) {
  print_(reason);
}

void EvaluationLines::on_training_end() {
  print_("Done with training");
}

std::string result_line(const train::Evaluation& evaluation) {
  const auto precision = train::value_of(evaluation, "mean_average_precision");
  if (precision && !evaluation.has_accuracies) {
    return fmt::format("Mean average precision = {:.4f} [{} examples]", *precision, evaluation.samples);
  }
  if (const auto ap = train::value_of(evaluation, kCocoAp); ap && !evaluation.has_accuracies) {
    return evaluation_line({.top_1 = *ap}, evaluation.samples);
  }
  if (!evaluation.has_accuracies && !evaluation.has_loss) return "";
  return evaluation_line({evaluation.top_1, evaluation.top_5, evaluation.shows_top_5}, evaluation.samples);
}

std::optional<double> compared_accuracy(const train::Evaluation& evaluation) {
  return evaluation.has_accuracies ? evaluation.top_1 : train::value_of(evaluation, kCocoAp);
}

std::vector<std::pair<std::string, double>> main_numbers(const train::Evaluation& evaluation) {
  std::vector<std::pair<std::string, double>> numbers;
  for (const char* name : {"mean_average_precision", kCocoAp, "COCO/AP50"}) {
    if (const auto value = train::value_of(evaluation, name)) numbers.emplace_back(name, *value);
  }
  if (!numbers.empty() || (!evaluation.has_accuracies && !evaluation.has_loss)) return numbers;
  numbers.emplace_back("top_1_accuracy", evaluation.top_1);
  if (evaluation.shows_top_5) numbers.emplace_back("top_5_accuracy", evaluation.top_5);
  if (const auto value = train::value_of(evaluation, kTtaTop1)) numbers.emplace_back(kTtaTop1, *value);
  return numbers;
}

std::function<std::optional<std::string>(const train::Evaluation&)> stop_at_top_1_accuracy(double goal) {
  if (!(goal >= 0 && goal <= 1)) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "accuracy to stop at is out of range", .expected = "0 .. 1", .actual = fmt::format("{}", goal)});
  }
  return [goal](const train::Evaluation& evaluation) -> std::optional<std::string> {
    if (compared_accuracy(evaluation).value_or(0) < goal) return std::nullopt;
    return fmt::format("Stopping, as eval accuracy at least {} was reached", python_number(goal));
  };
}

}  // namespace trainyard::frontends
