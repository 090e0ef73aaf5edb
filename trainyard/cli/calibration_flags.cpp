#include "trainyard/cli/calibration_flags.h"

#include <iterator>
#include <string>

#include "trainyard/cli/command_flags.h"
#include "trainyard/core/base/error.h"
#include "trainyard/frontends/model/quantize_trained.h"
#include "trainyard/frontends/options/input_options.h"
#include "trainyard/frontends/options/precision_options.h"

namespace trainyard::cli {
namespace {

using core::Error, core::ErrorCode;

constexpr const char* kCalibrationGroup = "Calibration";

// The words of a choice, in the order of its enumeration.
constexpr const char* kRangeNames[] = {"auto", "min_max", "percentile", "entropy"};
constexpr const char* kMethodNames[] = {"auto", "plain", "bias_correction", "equalization", "smooth_quant"};

template <typename Enum, size_t kCount>
Enum chosen(const core::FlagValues& values, const char* flag, const char* const (&names)[kCount]) {
  for (size_t i = 0; i < kCount; ++i) {
    if (values.text(flag) == names[i]) return static_cast<Enum>(i);
  }
  return Enum{};
}

}  // namespace

void declare_calibration_flags(core::FlagTable& table) {
  table
      .text("data_dir", std::nullopt,
            "images of the model's training, from which the scales of activations follow; validation images are left "
            "out")
      .group(kCalibrationGroup);
  frontends::declare_calibration_batches_flag(table, kCalibrationGroup,
                                              "batches of 32 training images, drawn at random, that the scales of "
                                              "activations follow from");
  table
      .choice("calibration", kRangeNames[0], {std::begin(kRangeNames), std::end(kRangeNames)},
              "how the range of an activation follows from its values: the whole one, without the outermost values, "
              "or of the least divergence; auto tries each")
      .group(kCalibrationGroup);
  table
      .choice("quantize_method", kMethodNames[0], {std::begin(kMethodNames), std::end(kMethodNames)},
              "what is changed in the network before it is rounded: nothing, its biases, also the ranges of channels "
              "from layer to layer, or those of activations before linear layers; auto tries those that apply, and "
              "takes what agrees best with the network in float")
      .group(kCalibrationGroup);
  table
      .real("percentile", std::nullopt,
            "with calibration=percentile: percent of the values that stay inside the range at each end; unset: tries "
            "99.9, 99.99 and 99.999")
      .bounds(50, 100)
      .group(kCalibrationGroup);
  frontends::declare_division_flags(table);
}

train::QuantizeModelOptions read_quantize_options(const core::FlagValues& values) {
  train::QuantizeModelOptions options;
  options.batches = values.integer("calibration_batches");
  options.quantization.ranges = chosen<nn::RangeMethod>(values, "calibration", kRangeNames);
  options.quantization.method = chosen<nn::QuantizeMethod>(values, "quantize_method", kMethodNames);
  options.quantization.percentile = values.optional_real("percentile");
  if (options.quantization.percentile && options.quantization.ranges != nn::RangeMethod::kPercentile) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "--percentile is of --calibration=percentile", .remedy = "pass both, or neither"});
  }
  options.validate();
  return options;
}

void refuse_calibration_flags(const core::FlagValues& values, const std::string& with) {
  core::FlagTable table;
  declare_calibration_flags(table);
  for (const core::FlagSpec& flag : table.all()) refuse_given(values, {flag.name.c_str()}, with);
}

void require_quantizable(const frontends::TrainedModel& trained) {
  if (trained.quantization != nullptr) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "the model is quantized already",
                                              .where = trained.checkpoint.path,
                                              .expected = "a model in floating point",
                                              .remedy = "quantize the one that it was made from"});
  }
  frontends::require_classifier(trained);
  if (trained.input_known) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "the model does not say how an image becomes its input: its training had tensors",
               .where = trained.checkpoint.path,
               .remedy = "quantize it where it was trained: train::quantize_model() takes tensors"});
}

frontends::InputSettings calibration_input(const core::FlagValues& values, const frontends::OpenedModel& opened,
                                           const frontends::TrainedModel& trained) {
  frontends::InputOptions input;
  input.data_dir = values.text("data_dir");
  frontends::read_division_flags(values, input);
  if (!input.division && opened.division) {
    input.division = opened.division;
    input.division_is_saved = true;
  }
  input.images.trained = frontends::TrainedInput{
      .input = trained.input, .preprocessor = trained.preprocessor, .origin = trained.input_origin};
  frontends::InputSettings settings =
      frontends::settle_input(input, trained.identity.dataset, {trained.input.height, trained.input.width}, 1);
  settings.transform = trained.input;
  return settings;
}

}  // namespace trainyard::cli
