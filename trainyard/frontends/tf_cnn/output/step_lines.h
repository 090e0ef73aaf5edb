// Formats the lines of a run as tf_cnn_benchmarks does, because scripts read them. step_log.h prints them.
//
//   Step	Img/sec	total_loss	top_1_accuracy	top_5_accuracy
//   1	images/sec: 14.2 +/- 0.0 (jitter = 0.0)	7.020	0.500	1.000
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "trainyard/train/callbacks/step_accuracies.h"

namespace trainyard::frontends {

struct SpeedStatistics {
  double mean = 0;         // images/s: batch / mean step time
  double uncertainty = 0;  // standard deviation of the steps' speeds / sqrt(number of steps)
  double jitter = 0;       // 1.4826 * median absolute deviation of the steps' speeds
};

// Returns the statistics of steps of `batch` images that took `seconds`, oldest first, at least one. With `ewma_weight`
// (0 .. 1, neither unset nor 0) the mean step time is weighted: the k-th newest step counts (1 - ewma_weight)^k, k from
// 0.
SpeedStatistics speed_statistics(double batch, std::span<const double> seconds,
                                 std::optional<double> ewma_weight = std::nullopt);

std::string step_header(std::string_view loss_name, bool with_accuracies, bool with_top_5 = true);
// `step` counts from 1.
std::string step_line(int64_t step, const SpeedStatistics& speed, double loss,
                      const std::optional<train::Accuracies>& accuracies = std::nullopt);
// Returns the three lines at the end, without the last line break.
std::string total_lines(double images_per_second);

std::string evaluation_step_line(int64_t step, double examples_per_second);
std::string evaluation_line(const train::Accuracies& accuracies, int64_t examples);

// Returns a number as Python's str() formats it: 0.5, 1.0, 1e-05.
std::string python_number(double value);

}  // namespace trainyard::frontends
