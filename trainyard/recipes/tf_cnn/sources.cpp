// The input of a run as batches.
#include "trainyard/data/device/device_transform.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/data/pipeline/synthetic_source.h"
#include "trainyard/recipes/shared/dataset_choice.h"
#include "trainyard/recipes/tf_cnn/prepare.h"

namespace trainyard::recipes {
namespace {

std::shared_ptr<const data::Transform> make_transform(const PreparedRun& run, const data::TransformOptions& options) {
  if (!run.input.decode_on_gpu) return data::transforms().get(run.input.dataset)(options);
  const at::Device device = run.device.device();
  return data::make_device_transform(
      options, data::open_image_device("cuda", {.index = device.index(), .dtype = run.device.dtype}));
}

}  // namespace

std::shared_ptr<data::BatchSource> make_source(const PreparedRun& run, data::Subset subset) {
  const bool training = subset == data::Subset::kTrain && run.mode() != RunMode::kForwardOnly;
  const int replicas = subset == data::Subset::kTrain ? run.replicas : 1;
  const int64_t batch_size = subset == data::Subset::kTrain ? run.batch_size : run.eval_batch_size * run.replicas;
  if (run.input.synthetic()) {
    data::SyntheticOptions synthetic;
    synthetic.batch_size = batch_size;
    synthetic.local_replicas = synthetic.total_replicas = replicas;
    synthetic.height = run.input.transform.height;
    synthetic.width = run.input.transform.width;
    synthetic.classes = run.num_classes;
    synthetic.epoch_size = subset == data::Subset::kTrain ? run.train_examples : run.validation_examples;
    synthetic.seed = run.input.seed;
    return std::make_shared<data::SyntheticSource>(synthetic);
  }
  data::TransformOptions transform = run.input.transform;
  transform.training = training;
  data::PipelineOptions pipeline = pipeline_options(run.input, training);
  pipeline.batch_size = batch_size;
  pipeline.local_replicas = pipeline.total_replicas = replicas;
  if (const auto accelerator = run.device.accelerator(); accelerator != nullptr) {
    pipeline.allocate = [accelerator](at::IntArrayRef sizes, at::ScalarType dtype) {
      return accelerator->pinned(sizes, dtype);
    };
  }
  if (training) {
    pipeline.transforms_by_epoch =
        data::transforms_of(run.input.epoch_sizes, transform,
                            [&run](const data::TransformOptions& options) { return make_transform(run, options); });
  }
  pipeline.repeat = subset == data::Subset::kTrain || !run.eval_exact;
  if (subset == data::Subset::kTrain) {
    pipeline.label_texts = run.label_texts;
  } else {
    pipeline.label_texts = std::make_shared<data::LabelTexts>();
    pipeline.known_texts = run.label_texts;
  }
  const auto& dataset = subset == data::Subset::kTrain ? run.train_data : run.validation_data;
  pipeline.label_offset = label_offset(*dataset, models::find_dataset(run.input.dataset), run.num_classes);
  return std::make_shared<data::Pipeline>(dataset, make_transform(run, transform), pipeline);
}

}  // namespace trainyard::recipes
