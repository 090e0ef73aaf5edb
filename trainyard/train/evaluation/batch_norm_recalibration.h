// Recomputes batch norm statistics (recalibrate_batch_norms()) at the end of a training.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::train {

// Recalibrates after the last step of the training, but not when the training is stopped before. Add it before the
// callbacks that evaluate and save then. With several processes each one does it, so that none waits long for another.
class RecalibrationCallback : public Callback {
 public:
  struct Options {
    RecalibrationOptions norms{};
    int64_t batches = 200;  // fvcore's default
    // Makes the source of the batches, which must be the same each time.
    std::function<std::shared_ptr<data::BatchSource>()> make_source{};
    // Returns the parameters whose statistics are set.
    std::function<nn::ParameterSet&()> parameters{};
  };
  explicit RecalibrationCallback(Options options);

  std::string name() const override { return "batch_norm_recalibration"; }
  void after_step(Trainer& trainer, const StepView& view) override;

  // Recalibrates now, unless it has done so after the same step. For evaluations in the middle of a training. Where it
  // is stopped, only warns: the evaluation, of which the other ranks are a part, stops by itself.
  void run(int64_t global_step);

 private:
  Options options_;
  int64_t last_step_ = -1;
};

}  // namespace trainyard::train
