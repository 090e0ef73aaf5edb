// Averages of weights: a second set of values that follows the one that trains, to be evaluated, saved and exported in
// its place. After each update, or each `every`-th, counted in steps that were not skipped:
//
//   kExponential  a += (1 - d) * (w - a), from the weights with which the run begins on (Polyak, Juditsky,
//                 "Acceleration of stochastic approximation by averaging", 1992, in the form of TensorFlow's
//                 ExponentialMovingAverage; timm's ModelEma and PyTorch's get_ema_avg_fn round differently, no more).
//                 With warm-up d is min(decay, (1 + t) / (10 + t)), t the number of updates of the average, this one
//                 among them: TensorFlow's num_updates.
//   kEqual        the mean of the weights at those steps (Izmailov et al., "Averaging weights leads to wider optima and
//                 better generalization", 2018: stochastic weight averaging; PyTorch's AveragedModel), from
//                 `first_step` on. Before that the average is the weights as they are.
//
// Batch norm statistics: kExponential averages them as the weights, as timm and torchvision's reference recipes do;
// kEqual copies them, as PyTorch does, and they fit the averaged weights after recalibration alone
// (train/evaluation/batch_norm_recalibration.h). Buffers of integers are copied.
//
// Elements that a mask of the training's set holds at zero are zero here, too. A frozen parameter's average comes to
// rest on its values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/nn/execution/parameter_set.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

enum class AverageKind { kExponential, kEqual };
// Returns the names by which checkpoints call the kinds: "exponential", "equal".
[[nodiscard]] std::vector<std::string> average_kind_names();

struct WeightAverageOptions {
  AverageKind kind = AverageKind::kExponential;
  double decay = 0.9999;   // d of kExponential
  bool warmup = false;     // of kExponential
  int64_t every = 1;       // steps between two updates of the average
  int64_t first_step = 0;  // of kEqual: global steps that are done before the first one that counts
  void validate() const;   // throws kInvalidArgument
};

// Where a checkpoint holds the averaged weights: each parameter and buffer behind this name.
inline constexpr std::string_view kAveragedWeights = "average/weights/";

// One thread at a time. Works on any device, by ATen's operators there.
class WeightAverage : public core::Stateful {
 public:
  // `source` is allocated, has its initial values and outlives the average.
  WeightAverage(const WeightAverageOptions& options, const nn::ParameterSet& source);

  // Call it after each step of the training, before its values change again. step: the global step that was done, from
  // 0. skipped: the step has left the weights as they were, and does not count.
  void after_step(int64_t step, bool skipped);

  // Returns how often the average was updated.
  [[nodiscard]] int64_t updates() const { return updates_; }
  const WeightAverageOptions& options() const { return options_; }

  // Returns the averaged weights as they are to be read now: with the masks of the training's set, and where the
  // average has not begun, with its values. The same set each time; executors may be bound to it. Batch norm statistics
  // in it may be set anew.
  nn::ParameterSet& weights() const;

  // Saves "kind", "updates", "steps" and "weights/<parameter or buffer>". A state of another kind begins anew, with a
  // warning.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;
  // Begins anew, with the weights of the source as they are.
  void restart();

 private:
  // Returns by which part of the way the average moves towards the weights, for its next update.
  [[nodiscard]] double next_weight() const;
  void move(double weight);

  WeightAverageOptions options_;
  const nn::ParameterSet* source_;
  std::unique_ptr<nn::ParameterSet> average_;
  int64_t steps_ = 0;    // that count
  int64_t updates_ = 0;  // of the average
};

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
