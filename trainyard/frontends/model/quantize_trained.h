// Quantizes trained models on images of their training: for `trainyard quantize`, evaluations in 8 bits and
// --trt_mode=INT8.
#pragma once

#include <memory>

#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/frontends/options/input_settings.h"
#include "trainyard/nn/quantization/quantized_model.h"
#include "trainyard/train/model/quantize_model.h"

namespace trainyard::frontends {

// Returns the training images of input.data_dir, in an order that is drawn by input.seed, once, as evaluations make
// them: input.transform counts. Throws kInvalidArgument without a data_dir and for data without training images, and
// what data sets and data::Pipeline throw.
[[nodiscard]] std::shared_ptr<data::BatchSource> make_calibration_source(const InputSettings& input);

// Makes the model one that computes in 8 bits: its graph, parameters, scales and executor change. Returns the report.
// Throws what train::quantize_model() throws, and kUnsupported for a model that detects objects and on a GPU.
nn::QuantizationReport quantize_trained(TrainedModel& trained, data::BatchSource& images,
                                        const train::QuantizeModelOptions& options);

// Throws kUnsupported for a model that detects objects.
void require_classifier(const TrainedModel& trained);

}  // namespace trainyard::frontends
