// Makes the schedule of a run from its options, over the run's steps and epochs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/frontends/options/learning_rate_options.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/optim/schedules/learning_rate.h"

namespace trainyard::frontends {

// The facts about a run that a schedule needs.
struct ScheduleFacts {
  models::DefaultSchedule model{};      // the model's own
  int64_t train_examples = 0;           // of an epoch
  int64_t examples_per_step = 0;        // over all devices, micro-steps and processes
  int64_t rated_examples_per_step = 0;  // examples per step of the model's own rate; 0: examples_per_step
  int64_t steps = 0;                    // of the whole training; at least 1
  int summed_replicas = 1;              // replicas whose gradients an update sums instead of averaging them

  double steps_per_epoch() const {
    return static_cast<double>(train_examples) / static_cast<double>(examples_per_step);
  }
};

struct RunSchedule {
  std::string name;                   // "cosine", "the model's own"
  optim::LearningRate learning_rate;  // a function of the global step
  optim::Schedule momentum;           // of "momentum" or "beta1"; empty: it is not scheduled
  int64_t warmup_steps = 0;
  std::vector<int64_t> boundaries{};  // steps at which another piece begins, before the training's end; the first 20
};

// Throws kInvalidArgument for invalid numbers.
RunSchedule make_run_schedule(const LearningRateOptions& options, const ScheduleFacts& facts);

}  // namespace trainyard::frontends
