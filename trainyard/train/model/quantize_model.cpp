#include "trainyard/train/model/quantize_model.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::train {
std::vector<at::Tensor> take_images(data::BatchSource& source, int64_t batches) {
  std::vector<at::Tensor> images;
  for (int64_t i = 0; i < batches; ++i) {
    const std::vector<data::Batch> next = source.next();
    if (next.empty()) break;
    if (next.front().samples() > 0) images.push_back(next.front().images());
  }
  return images;
}

void QuantizeModelOptions::validate() const {
  if (batches <= 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the number of calibration batches is not positive",
                       .where = "QuantizeModelOptions",
                       .actual = std::to_string(batches)});
  }
  quantization.validate();
}

QuantizedModelFile quantize_model(const ModelDescription& description, const nn::ParameterSet& parameters,
                                  data::BatchSource& source, const QuantizeModelOptions& options) {
  options.validate();
  if (!description.graph) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "the model does not hold its graph",
                                                          .where = description.name,
                                                          .expected = "ModelDescription::graph",
                                                          .actual = "none"});
  }
  if (description.quantization != nullptr) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "the model computes in 8 bits already",
                                                          .where = description.name,
                                                          .expected = "a float model",
                                                          .remedy = "quantize the model that it was made from"});
  }
  const std::vector<at::Tensor> images = take_images(source, options.batches);
  nn::QuantizedModel model = nn::quantize(*description.graph, parameters, images, options.quantization);
  if (std::ssize(images) < options.batches) {
    model.report.warnings.push_back(
        fmt::format("{} calibration batches instead of {}: the source has no more", images.size(), options.batches));
  }
  QuantizedModelFile file{.description = description, .parameters = model.parameters, .model = std::move(model)};
  file.description.graph = file.model.graph;
  file.description.quantization = file.model.quantization;
  return file;
}

QuantizedModelFile quantize_model(const Model& model, data::BatchSource& source, const QuantizeModelOptions& options) {
  return quantize_model(model.description(), model.parameters(), source, options);
}

}  // namespace trainyard::train
