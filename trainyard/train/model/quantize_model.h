// Turns a trained model into one that computes in 8-bit integers, for save_model().
//
//   const auto model = train::load_model("flowers.safetensors");
//   auto source = data::make_folder_source(...);
//   const train::QuantizedModelFile quantized = train::quantize_model(*model, *source);
//   train::save_model("flowers_int8.safetensors", quantized.description, *quantized.parameters);
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/quantization/quantized_model.h"
#include "trainyard/train/model/model.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct QuantizeModelOptions {
  int64_t batches = 16;  // calibration batches that are taken from the source
  nn::QuantizeOptions quantization{};

  void validate() const;  // throws kInvalidArgument
};

// What save_model() writes, and how it came to be.
struct QuantizedModelFile {
  ModelDescription description{};  // with the folded graph and its Quantization
  std::shared_ptr<nn::ParameterSet> parameters{};
  nn::QuantizedModel model{};  // the same network
};

// Returns the "images" of the first replica in so many batches of the source, or in those that it has.
[[nodiscard]] std::vector<at::Tensor> take_images(data::BatchSource& source, int64_t batches);

// Takes `options.batches` batches from the source, the "images" of its first replica, and quantizes the model with them
// (nn::quantize(), whose errors and documented fallbacks are those of this function). A source that ends before gives
// as many as it has, and the report warns; without any image it is kInvalidArgument.
[[nodiscard]] QuantizedModelFile quantize_model(const ModelDescription& description, const nn::ParameterSet& parameters,
                                                data::BatchSource& source, const QuantizeModelOptions& options = {});
[[nodiscard]] QuantizedModelFile quantize_model(const Model& model, data::BatchSource& source,
                                                const QuantizeModelOptions& options = {});

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
