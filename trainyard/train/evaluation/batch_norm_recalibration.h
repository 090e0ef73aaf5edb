// Batch norm statistics of weights that have not been trained with them, as averages of weights are: measured anew, by
// forward passes over training data.
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
#include "trainyard/train/loop/callback.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct RecalibrationOptions {
  nn::Graph graph{};
  std::string executor = "auto";                    // a name for nn::make_executor
  at::ScalarType dtype = at::kFloat;                // of activations
  nn::KernelOptions kernels = nn::KernelOptions();  // not {}: GCC 12 warns of it in error
  uint64_t seed = 0;                                // of dropout and stochastic depth, which drop as in training
  std::function<bool()> stops{};  // asked before each batch: true ends the passes with kCancelled. None: they go on
};

// Sets the running means and variances in `parameters` to the means of what the next `batches` batches of `source`
// have, in training mode, each batch counting alike: torch.optim.swa_utils.update_bn, and fvcore's precise batch norm
// (Wu, Johnson, "Rethinking 'batch' in batch norm", 2021, section 3). With several replicas in the source, each of
// their batches counts. Batch norms whose parameters are all frozen keep their statistics. Nothing else changes, and
// where it throws, nothing.
//
// One thread at a time, with the intra-op threads of that thread; on an accelerator, within its use(). Throws
// kInvalidArgument for a graph without batch norms, and where the source ends before.
void recalibrate_batch_norms(const RecalibrationOptions& options, nn::ParameterSet& parameters,
                             data::BatchSource& source, int64_t batches);

// Recalibrates once the training has done its last step; a training that is stopped before is left as it is. Add it in
// front of the callbacks that evaluate and save then. Of several processes each does it, so that none waits long for
// another one.
class RecalibrationCallback : public Callback {
 public:
  struct Options {
    RecalibrationOptions norms{};
    int64_t batches = 200;  // fvcore's default
    // Makes the source of the batches: the same ones each time.
    std::function<std::shared_ptr<data::BatchSource>()> make_source{};
    // Returns the parameters whose statistics are set.
    std::function<nn::ParameterSet&()> parameters{};
  };
  explicit RecalibrationCallback(Options options);

  std::string name() const override { return "batch_norm_recalibration"; }
  void after_step(Trainer& trainer, const StepView& view) override;

  // Does it now; a second time after the same step it does nothing. For who evaluates in the middle of a training.
  void run(int64_t global_step);

 private:
  Options options_;
  int64_t last_step_ = -1;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
