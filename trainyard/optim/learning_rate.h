// Learning rates as functions of the global step (from 0). Plain functions that combine:
//
//   LearningRate rate = with_warmup(cosine(0.4, total_steps, warmup_steps), 0.4, warmup_steps);
//   rate(17)
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace trainyard::optim {

using LearningRate = std::function<double(int64_t step)>;

LearningRate constant(double rate);

// rates[i] until and including boundaries[i]; one more rate than boundaries, boundaries ascending.
LearningRate piecewise(std::vector<int64_t> boundaries, std::vector<double> rates);

// tf_cnn_benchmarks' "LR0;E1;LR1;...;En;LRn": boundaries int(E * batches_per_epoch) - 1. Throws kInvalidArgument with
// upstream's texts.
LearningRate parse_piecewise(std::string_view schedule, double batches_per_epoch);

// rate * factor^floor(step / decay_steps), not under `minimum`.
LearningRate exponential_staircase(double rate, int64_t decay_steps, double factor, double minimum);

// From `rate` at `begin` to 0 at `total_steps` along half a cosine (Loshchilov and Hutter, "SGDR", 2017).
LearningRate cosine(double rate, int64_t total_steps, int64_t begin = 0);

// rate * factors[i] up to and including batch int(boundary_epochs[i] * batches_per_epoch), after a linear warm-up from
// 0 to `rate` over the first warmup_epochs: how models' own schedules are given.
LearningRate epoch_schedule(double rate, const std::vector<double>& boundary_epochs, const std::vector<double>& factors,
                            double warmup_epochs, double batches_per_epoch);

struct ResnetScheduleOptions {
  double base_rate = 0.128;       // for a global batch of 256 images
  int64_t global_batch_size = 0;  // images an update
  double batches_per_epoch = 0;   // global batches
  int summed_replicas = 1;        // how many replicas' gradients are summed (not averaged) into an update
  double warmup_epochs = 5;       // 0: none
};

// base_rate * global_batch_size / 256 / summed_replicas: tf_cnn_benchmarks' heuristic for ResNets.
double resnet_base_rate(const ResnetScheduleOptions& options);

// That rate times 1, 0.1, 0.01, 0.001, 0.0001, changing at epochs 30, 60, 80 and 90, after a linear warm-up from 0.
LearningRate resnet_schedule(const ResnetScheduleOptions& options);

// Replaces the schedule while step < warmup_steps: initial * step / warmup_steps.
LearningRate with_warmup(LearningRate schedule, double initial, int64_t warmup_steps);

}  // namespace trainyard::optim
