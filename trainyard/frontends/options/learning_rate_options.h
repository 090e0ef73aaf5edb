// The learning rate: what a run is asked for, its flags, and which of them go together. Members are called as the flags
// are, which say what the values mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/flags/flags.h"
#include "trainyard/optim/schedules/learning_rate.h"

namespace trainyard::frontends {

struct LearningRateOptions {
  std::optional<double> init_learning_rate{};  // unset: the model's own schedule
  // "constant", "piecewise", "staircase", "exponential", "polynomial", "cosine", "cosine_restarts", "one_cycle", or
  // "auto": piecewise, staircase, constant or the model's own, depending on the other options.
  std::string schedule = "auto";
  std::optional<optim::PiecewiseEpochs> piecewise{};
  double num_epochs_per_decay = 0, decay_factor = 0, minimum = 0;
  double warmup_epochs = 0;
  // What the warm-up does. kReplace: the schedule begins behind it; kMultiply: the schedule begins at step 0, times a
  // factor that rises to 1; kCover: the schedule begins at step 0 and is hidden until the warm-up ends, as in timm.
  enum class Warmup { kReplace, kMultiply, kCover };
  Warmup warmup = Warmup::kReplace;
  double warmup_start = 0;           // the rate at step 0
  bool changes_by_epoch = false;     // the rate is a function of the whole epochs that are done
  double restart_period_factor = 1;  // of cosine_restarts
  double polynomial_power = 1;
  bool polynomial_cycle = false;
  double cooldown_epochs = 0;   // of cosine, and of polynomial over the run: the last ones, at `minimum`
  optim::OneCycle one_cycle{};  // its rate and steps are filled in by the run
  bool cycle_momentum = false;  // with one_cycle
  std::optional<optim::BatchScaling> scaling{};  // scaling of init_learning_rate or the piecewise rates; unset: none
  int64_t scaling_batch_size = 256;              // the global batch that they are for
  std::optional<double> resnet_base_lr{};
};

void declare_learning_rate_flags(core::FlagTable& table);

// Checks what tf_cnn_benchmarks checks first: flags of the decay that must come together. Throws kInvalidArgument with
// its texts.
void check_learning_rate_decay(const core::FlagValues& values);

// Checks all others, and ours. Returns the piecewise schedule, where one is given. Throws kInvalidArgument for flags
// that contradict each other, by their names.
std::optional<optim::PiecewiseEpochs> check_schedule_flags(const core::FlagValues& values);

// Reads flags that were checked; `piecewise` is what check_schedule_flags() returns.
[[nodiscard]] LearningRateOptions read_learning_rate(const core::FlagValues& values);

// Returns warnings of flags that tf_cnn_benchmarks accepts and has no use for.
[[nodiscard]] std::vector<std::string> learning_rate_warnings(const core::FlagValues& values);

}  // namespace trainyard::frontends
