// The input of a run as batches.
#include "trainyard/data/augment/crop_margin.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/frontends/input/image_source.h"
#include "trainyard/frontends/tf_cnn/learning_task.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/train/evaluation/image_views.h"

namespace trainyard::frontends {
namespace {

// The model's own synthetic batches; null where it has none.
std::shared_ptr<data::BatchSource> own_synthetic_source(const PreparedRun& run, const ImageSourceOptions& options) {
  if (run.own.model == nullptr || !run.synthetic()) return nullptr;
  const auto wanted = [seed = run.input.seed, options](int64_t batch, int replica) {
    return SyntheticBatch{.batch_size = options.batch_size,
                          .num_classes = options.num_classes,
                          .seed = seed,
                          .batch = batch,
                          .replica = options.first_replica + replica};
  };
  if (run.own.model->get_synthetic_inputs(wanted(0, 0)).empty()) return nullptr;
  return std::make_shared<data::FunctionSource>(
      [model = run.own.model, wanted](const data::BatchPlace& place) {
        return model->get_synthetic_inputs(wanted(place.batch, place.replica));
      },
      data::FunctionSourceOptions{
          .replicas = options.replicas, .total_replicas = options.total_replicas, .batch_size = options.batch_size});
}

WantedBatches wanted_batches(const PreparedRun& run, data::Subset subset, const ImageSourceOptions& options) {
  return {.subset = subset,
          .batch_size = options.batch_size,
          .replicas = options.replicas,
          .first_replica = options.first_replica,
          .total_replicas = options.total_replicas,
          .image_size = {run.graph.input_shape()[1], run.graph.input_shape()[2]},
          .num_classes = options.num_classes,
          .seed = run.input.seed,
          .training = options.training,
          .repeat = options.repeat};
}

}  // namespace

std::shared_ptr<data::BatchSource> make_source(const PreparedRun& run, data::Subset subset, Share share) {
  const bool train_images = subset == data::Subset::kTrain;
  ImageSourceOptions options;
  options.dataset = train_images ? run.train_data : run.validation_data;
  options.num_classes = run.num_classes;
  options.batch_size = train_images ? run.batch_size : run.eval_batch_size * (run.replicas / run.eval_replicas());
  options.replicas = train_images ? run.replicas : run.eval_replicas();
  const bool shared = share == Share::kOwn && (train_images || run.shares_evaluation());
  options.first_replica = shared ? run.device.rank() * options.replicas : 0;
  options.total_replicas = options.replicas * (shared ? run.device.ranks() : 1);
  options.training = train_images;  // also in forward passes, as in tf_cnn_benchmarks
  options.repeat = train_images || !run.eval_exact;
  options.epoch_size = train_images ? run.train_examples : run.validation_examples;
  if (train_images) {
    if (run.input.balanced_sampling) options.balanced_labels = run.train_labels;
    options.label_texts = run.label_texts;
  } else {
    options.label_texts = std::make_shared<data::LabelTexts>();
    options.known_texts = run.label_texts;
  }
  if (run.own.dataset != nullptr) return run.own.dataset->make_source(wanted_batches(run, subset, options));
  if (auto own = own_synthetic_source(run, options)) return own;
  if (run.input.synthetic()) {
    if (auto source = task_of(run).synthetic_source(run, options)) return source;
  }
  if (train_images || !train::crops_corners(run.options.tta)) {
    return make_image_source(run.input, run.device, options);
  }
  InputSettings input = run.input;
  input.transform = data::with_crop_margin(input.transform, input.dataset);
  return make_image_source(input, run.device, options);
}

}  // namespace trainyard::frontends
