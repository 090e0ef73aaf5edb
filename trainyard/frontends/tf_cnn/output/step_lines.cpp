#include "trainyard/frontends/tf_cnn/output/step_lines.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <fmt/format.h>

namespace trainyard::frontends {
namespace {

constexpr int kDashes = 64;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double weighted_mean(std::span<const double> values, double weight_of_newest) {
  double sum = 0, weights = 0;
  double weight = 1;
  for (auto value = values.rbegin(); value != values.rend(); ++value) {
    sum += weight * *value;
    weights += weight;
    weight *= 1 - weight_of_newest;
  }
  return sum / weights;
}

}  // namespace

SpeedStatistics speed_statistics(double batch, std::span<const double> seconds, std::optional<double> ewma_weight) {
  const auto count = static_cast<double>(seconds.size());
  const double mean_seconds = ewma_weight.value_or(0) != 0
                                  ? weighted_mean(seconds, *ewma_weight)
                                  : std::accumulate(seconds.begin(), seconds.end(), 0.0) / count;
  std::vector<double> speeds;
  speeds.reserve(seconds.size());
  for (const double time : seconds) speeds.push_back(batch / time);
  const double mean_speed = std::accumulate(speeds.begin(), speeds.end(), 0.0) / count;
  double squares = 0;
  for (const double speed : speeds) squares += (speed - mean_speed) * (speed - mean_speed);
  const double middle = median(speeds);
  for (double& speed : speeds) speed = std::abs(speed - middle);
  return {.mean = batch / mean_seconds,
          .uncertainty = std::sqrt(squares / count) / std::sqrt(count),
          .jitter = 1.4826 * median(std::move(speeds))};
}

std::string step_header(std::string_view loss_name, bool with_accuracies, bool with_top_5) {
  std::string name(loss_name);
  std::replace(name.begin(), name.end(), '/', ' ');
  return fmt::format("Step\tImg/sec\t{}{}{}", name, with_accuracies ? "\ttop_1_accuracy" : "",
                     with_accuracies && with_top_5 ? "\ttop_5_accuracy" : "");
}

std::string step_line(int64_t step, const SpeedStatistics& speed, double loss,
                      const std::optional<train::Accuracies>& accuracies) {
  std::string line = fmt::format("{}\timages/sec: {:.1f} +/- {:.1f} (jitter = {:.1f})\t{:.3f}", step, speed.mean,
                                 speed.uncertainty, speed.jitter, loss);
  if (accuracies) line += fmt::format("\t{:.3f}", accuracies->top_1);
  if (accuracies && accuracies->shows_top_5) line += fmt::format("\t{:.3f}", accuracies->top_5);
  return line;
}

std::string total_lines(double images_per_second) {
  const std::string dashes(kDashes, '-');
  return fmt::format("{}\ntotal images/sec: {:.2f}\n{}", dashes, images_per_second, dashes);
}

std::string evaluation_step_line(int64_t step, double examples_per_second) {
  return fmt::format("{}\t{:.1f} examples/sec", step, examples_per_second);
}

std::string evaluation_line(const train::Accuracies& accuracies, int64_t examples) {
  const std::string top_5 = accuracies.shows_top_5 ? fmt::format(" Accuracy @ 5 = {:.4f}", accuracies.top_5) : "";
  return fmt::format("Accuracy @ 1 = {:.4f}{} [{} examples]", accuracies.top_1, top_5, examples);
}

std::string python_number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

}  // namespace trainyard::frontends
