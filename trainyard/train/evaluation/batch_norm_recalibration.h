// Recomputes batch norm statistics with forward passes over training data, for weights that were not trained with them,
// such as averages of weights.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/devices/open_devices.h"
#include "trainyard/train/loop/callback.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct RecalibrationOptions {
  nn::Graph graph{};
  OpenDevices devices{};  // what of them runs the model: executor, dtype of activations, kernels
  uint64_t seed = 0;      // seed of dropout and stochastic depth, which are active as in training
  std::function<bool()>
      stops{};  // called before each batch: true ends the passes with kCancelled. Empty: never stopped
};

// Sets the running means and variances in `parameters` to the means over the next `batches` batches of `source`, in
// training mode, each batch with the same weight: torch.optim.swa_utils.update_bn, and fvcore's precise batch norm (Wu,
// Johnson, "Rethinking 'batch' in batch norm", 2021, section 3). With several replicas in the source, all of their
// batches are used. Batch norms whose parameters are all frozen keep their statistics. Nothing else changes, and
// nothing at all when it throws.
//
// One thread at a time, with the intra-op threads of that thread; on an accelerator, within its use(). Throws
// kInvalidArgument for a graph without batch norms, and when the source has too few batches.
void recalibrate_batch_norms(const RecalibrationOptions& options, nn::ParameterSet& parameters,
                             data::BatchSource& source, int64_t batches);

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

  // Recalibrates now, unless it has done so after the same step. For evaluations in the middle of a training.
  void run(int64_t global_step);

 private:
  Options options_;
  int64_t last_step_ = -1;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
