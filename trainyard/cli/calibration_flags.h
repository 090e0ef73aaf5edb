// How a trained model is quantized, and on which images: the flags that `trainyard quantize` and `trainyard bench
// quantization` share.
#pragma once

#include <string>

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/frontends/options/input_settings.h"
#include "trainyard/train/model/quantize_model.h"

namespace trainyard::cli {

// Declares data_dir, calibration_batches, calibration, quantize_method, percentile and the flags of the division.
void declare_calibration_flags(core::FlagTable& table);

// Reads how to quantize. Throws kInvalidArgument.
train::QuantizeModelOptions read_quantize_options(const core::FlagValues& values);

// Throws kInvalidArgument where one of the flags is given, and `with` leaves them without use.
void refuse_calibration_flags(const core::FlagValues& values, const std::string& with);

// Throws kInvalidArgument for a model that is quantized already or does not say how an image becomes its input,
// kUnsupported for one that detects objects.
void require_quantizable(const frontends::TrainedModel& trained);

// Returns the images, for make_calibration_source(). Throws what settle_input() throws.
frontends::InputSettings calibration_input(const core::FlagValues& values, const frontends::OpenedModel& opened,
                                           const frontends::TrainedModel& trained);

}  // namespace trainyard::cli
