// Averages of weights: a second set of values that is updated from the trained one, and evaluated, saved and exported
// instead of it. After each update that was not skipped, or each `every`-th of these:
//
//   kExponential  a += (1 - d) * (w - a), from the weights with which the run begins on (Polyak, Juditsky,
//                 "Acceleration of stochastic approximation by averaging", 1992, in the form of TensorFlow's
//                 ExponentialMovingAverage; timm's ModelEma and PyTorch's get_ema_avg_fn round differently, no more).
//                 With warm-up d is min(decay, (1 + t) / (10 + t)), t the number of updates of the average, this one
//                 among them: TensorFlow's num_updates.
//   kEqual        the mean of the weights at those steps (Izmailov et al., "Averaging weights leads to wider optima and
//                 better generalization", 2018: stochastic weight averaging; PyTorch's AveragedModel), from
//                 `first_step` on. Before that the average is the weights as they are. Those steps are each `every`-th
//                 behind `first_step`, skipped ones among them, so that they stay the ends of epochs; weights that no
//                 step has changed since the last of them do not count again.
//   kOptimizer    the mean that the optimizer itself keeps, Optimizer::result(): x of the schedule-free optimizers. It
//                 has no memory of its own state: it is computed from the weights and the optimizer when it is read.
//
// Batch norm statistics: kExponential averages them as the weights, as timm and torchvision's reference recipes do;
// kEqual and kOptimizer copy them, as PyTorch does, and they only fit the averaged weights after recalibration
// (train/evaluation/batch_norm_recalibration.h). Buffers of integers are copied.
//
// Elements that a mask of the training's set holds at zero are zero here, too. The average of a frozen parameter
// converges to its values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/nn/execution/parameter_set.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

class Optimizer;

enum class AverageKind { kExponential, kEqual, kOptimizer };
// Returns the names of the kinds in checkpoints: "exponential", "equal", "optimizer".
[[nodiscard]] std::vector<std::string> average_kind_names();

struct WeightAverageOptions {
  AverageKind kind = AverageKind::kExponential;
  double decay = 0.9999;   // d of kExponential
  bool warmup = false;     // of kExponential
  int64_t every = 1;       // steps between two updates of the average
  int64_t first_step = 0;  // of kEqual: global steps before the first one that is averaged
  void validate() const;   // throws kInvalidArgument
};

// Prefix of the averaged parameters and buffers in a checkpoint.
inline constexpr std::string_view kAveragedWeights = "average/weights/";

// For one thread at a time. Works on any device, with ATen's operators.
class WeightAverage : public core::Stateful {
 public:
  // `source` is allocated, has its initial values and must outlive the average, as must the optimizer of kOptimizer,
  // which has a result (Optimizer::has_result()); others need none.
  WeightAverage(const WeightAverageOptions& options, const nn::ParameterSet& source,
                const Optimizer* optimizer = nullptr);

  // Call it after each step of the training, before its values change again. `step` is the global step that was done,
  // from 0. `skipped` says that the step has not changed the weights: kExponential does not count it.
  void after_step(int64_t step, bool skipped);

  // Returns how often the average was updated.
  [[nodiscard]] int64_t updates() const { return updates_; }
  const WeightAverageOptions& options() const { return options_; }

  // Returns the current averaged weights, with the masks of the training's set. Before the average begins they are the
  // training's values. Always returns the same set, so executors may be bound to it. The caller may recompute its batch
  // norm statistics.
  nn::ParameterSet& weights() const;

  // Saves "kind", "updates", "steps" and "weights/<parameter or buffer>". After loading a state of another kind the
  // average restarts, with a warning.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;
  // Restarts the average from the current weights of the source.
  void restart();
  // Does so where no step has counted yet. Call it when the values of the source were replaced outside of a step.
  void source_replaced();

 private:
  // Returns the weight of the current values in the next update of the average.
  [[nodiscard]] double next_weight() const;
  void move(double weight);
  void take_result() const;

  WeightAverageOptions options_;
  const nn::ParameterSet* source_;
  const Optimizer* optimizer_;                     // of kOptimizer
  mutable std::optional<uint64_t> taken_version_;  // of the source's values, whose result average_ holds
  std::unique_ptr<nn::ParameterSet> average_;
  int64_t steps_ = 0;    // steps that count: those that were not skipped
  int64_t updates_ = 0;  // of the average
  // How many multiples of `every` the last step had passed; for kEqual. Empty before the first step, and after load().
  std::optional<int64_t> ends_;
  bool changed_ = false;  // a step has changed the weights since the last update of the average; true behind loading
};

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
