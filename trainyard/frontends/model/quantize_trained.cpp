#include "trainyard/frontends/model/quantize_trained.h"

#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/frontends/model/model_metadata.h"

namespace trainyard::frontends {
namespace {

constexpr int64_t kImagesABatch = 32;

std::shared_ptr<const data::Dataset> open_training_images(const InputSettings& input) try {
  return open_dataset(input, data::Subset::kTrain);
} catch (const data::NoSuchSubset& error) {
  core::ErrorDetail detail = error.detail();
  detail.problem = "there are no training images to find scales of 8 bits with: " + detail.problem;
  throw core::Error(core::ErrorCode::kInvalidArgument, detail);
}

}  // namespace

std::shared_ptr<data::BatchSource> make_calibration_source(const InputSettings& input) {
  if (input.synthetic()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "scales of 8-bit integers follow from images, and there are none",
                       .expected = "some hundred images of the model's training",
                       .remedy = "pass --data_dir"});
  }
  const std::shared_ptr<const data::Dataset> dataset = open_training_images(input);
  data::TransformOptions transform = input.transform;
  transform.training = false;
  data::PipelineOptions pipeline = pipeline_options(input, /*training=*/true);
  pipeline.batch_size = kImagesABatch;
  pipeline.repeat = false;
  pipeline.repeated_augmentation = 1;
  pipeline.mix = {};
  if (dataset->has_label_sets()) pipeline.label_set_size = dataset->label_count();
  return std::make_shared<data::Pipeline>(dataset, data::transforms().get(input.dataset)(transform), pipeline);
}

void require_classifier(const TrainedModel& trained) {
  if (trained.identity.dataset != "coco") return;
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = "models that detect objects are not computed in 8-bit integers",
                     .where = trained.checkpoint.path,
                     .expected = "a classifier of images",
                     .actual = trained.identity.model,
                     .remedy = "use --precision=bfloat16"});
}

nn::QuantizationReport quantize_trained(TrainedModel& trained, data::BatchSource& images,
                                        const train::QuantizeModelOptions& options) {
  require_classifier(trained);
  if (trained.executor->context().device.type() != at::kCPU) {
    throw core::Error(core::ErrorCode::kUnsupported, {.problem = "models in 8-bit integers compute on CPUs",
                                                      .where = trained.checkpoint.path,
                                                      .remedy = "pass --device=cpu"});
  }
  train::QuantizedModelFile quantized =
      train::quantize_model(model_description_of(trained), *trained.parameters, images, options);
  nn::QuantizationReport report = std::move(quantized.model.report);
  take_quantized(trained, std::move(quantized.model));
  return report;
}

}  // namespace trainyard::frontends
