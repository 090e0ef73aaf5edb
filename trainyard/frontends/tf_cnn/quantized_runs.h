// 8-bit integers in runs: frozen forward passes, evaluations, and quantization-aware trainings.
#pragma once

#include <functional>

#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/train/step/forward_trainer.h"

namespace trainyard::frontends {

// Lets the forward passes compute in 8 bits (--trt_mode=INT8): graph, start and quantization of `options` change. The
// scales follow from the first --calibration_batches of the run's input, synthetic or not, and are the same in each run
// with the same flags. Weights that are not trained get scales of the smallest and largest values of some 64 images:
// nothing is compared. Logs the report. Throws what nn::quantize() throws, and kUnsupported for a model that detects
// objects.
void quantize_forward_passes(const PreparedRun& run, train::ForwardOptions& options);

// Lets the evaluation compute in the precision that it is asked for, and that the model has: sets run.quantization, and
// run.graph where the model is quantized. A model without scales gets them for --precision=int8, from training images
// of the run's data; the report is logged. Throws what quantize_trained() throws, and kUnsupported for several
// processes that would have to find scales.
void settle_evaluated_precision(PreparedRun& run, TrainedModel& trained);

// Chooses the executor of --qat, once devices are open. Throws kUnsupported for a GPU.
void settle_quantization_aware_device(PreparedRun& run);
// Throws kInvalidArgument where --qat has no weights to begin with, and where the run continues a training that was
// begun without it, or lacks it though the training was begun with it; kUnsupported for a model that detects objects.
void check_quantization_aware_start(const PreparedRun& run);
// Returns `start`, and behind it what sets the scales of --qat by training images and logs the report; `start` alone
// without --qat and where the run continues, as its checkpoint has the scales.
[[nodiscard]] std::function<void(nn::ParameterSet&)> with_training_scales(const PreparedRun& run,
                                                                          std::function<void(nn::ParameterSet&)> start);

}  // namespace trainyard::frontends
