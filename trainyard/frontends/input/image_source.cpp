#include "trainyard/frontends/input/image_source.h"

#include "trainyard/data/device/device_transform.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/data/pipeline/synthetic_source.h"
#include "trainyard/frontends/input/dataset_choice.h"
#include "trainyard/nn/execution/accelerator.h"

namespace trainyard::frontends {
namespace {

std::shared_ptr<const data::Transform> make_transform(const InputSettings& input, const train::OpenDevices& device,
                                                      const data::TransformOptions& options) {
  if (!input.decode_on_gpu) return data::transforms().get(input.dataset)(options);
  const at::Device place = device.device();
  return data::make_device_transform(options,
                                     data::open_image_device("cuda", {.index = place.index(), .dtype = device.dtype}));
}

int total_replicas(const ImageSourceOptions& options) {
  return options.total_replicas > 0 ? options.total_replicas : options.replicas;
}

std::shared_ptr<data::BatchSource> synthetic_source(const InputSettings& input, const ImageSourceOptions& options) {
  data::SyntheticOptions synthetic;
  synthetic.batch_size = options.batch_size;
  synthetic.local_replicas = options.replicas;
  synthetic.first_replica = options.first_replica;
  synthetic.total_replicas = total_replicas(options);
  synthetic.height = input.transform.height;
  synthetic.width = input.transform.width;
  synthetic.classes = options.num_classes;
  synthetic.epoch_size = options.epoch_size;
  synthetic.seed = input.seed;
  synthetic.samples = options.synthetic;
  return std::make_shared<data::SyntheticSource>(synthetic);
}

}  // namespace

std::shared_ptr<data::BatchSource> make_image_source(const InputSettings& input, const train::OpenDevices& device,
                                                     const ImageSourceOptions& options) {
  if (input.synthetic()) return synthetic_source(input, options);
  data::TransformOptions transform = input.transform;
  transform.training = options.training;
  data::PipelineOptions pipeline = pipeline_options(input, options.training);
  pipeline.batch_size = options.batch_size;
  pipeline.local_replicas = options.replicas;
  pipeline.first_replica = options.first_replica;
  pipeline.total_replicas = total_replicas(options);
  if (const auto accelerator = device.accelerator(); accelerator != nullptr) {
    pipeline.allocate = [accelerator](at::IntArrayRef sizes, at::ScalarType dtype) {
      return accelerator->pinned(sizes, dtype);
    };
  }
  if (options.training) {
    pipeline.transforms_by_epoch = data::transforms_of(
        input.epoch_sizes, transform,
        [&](const data::TransformOptions& of_epoch) { return make_transform(input, device, of_epoch); });
  }
  pipeline.repeat = options.repeat;
  pipeline.label_texts = options.label_texts;
  pipeline.known_texts = options.known_texts;
  pipeline.balanced_labels = options.balanced_labels;
  if (options.dataset->has_label_sets()) pipeline.label_set_size = options.num_classes;
  pipeline.label_offset = label_offset(*options.dataset, models::find_dataset(input.dataset), options.num_classes);
  return std::make_shared<data::Pipeline>(options.dataset, make_transform(input, device, transform), pipeline);
}

}  // namespace trainyard::frontends
