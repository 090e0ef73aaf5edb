// The schedule of a run: its options over the steps and epochs that the run has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/frontends/options/learning_rate_options.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/optim/schedules/learning_rate.h"

namespace trainyard::frontends {

// What a schedule needs to know of a run.
struct ScheduleFacts {
  models::DefaultSchedule model{};      // the model's own
  int64_t train_examples = 0;           // of an epoch
  int64_t examples_per_step = 0;        // over all devices, micro-steps and processes
  int64_t rated_examples_per_step = 0;  // for which the model's own rate is meant; 0: examples_per_step
  int64_t steps = 0;                    // of the whole training; at least 1
  int summed_replicas = 1;              // whose gradients an update sums instead of averaging them

  double steps_per_epoch() const {
    return static_cast<double>(train_examples) / static_cast<double>(examples_per_step);
  }
};

struct RunSchedule {
  std::string name;                   // "cosine", "the model's own"
  optim::LearningRate learning_rate;  // a function of the global step
  optim::Schedule momentum;           // of "momentum" or "beta1"; empty: it is not scheduled
  int64_t warmup_steps = 0;
  std::vector<int64_t> boundaries{};  // steps before the training's end with which another piece begins; the first 20
};

// Throws kInvalidArgument for numbers that cannot be.
RunSchedule make_run_schedule(const LearningRateOptions& options, const ScheduleFacts& facts);

}  // namespace trainyard::frontends
