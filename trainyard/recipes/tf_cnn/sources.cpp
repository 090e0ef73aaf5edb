// The input of a run as batches.
#include "trainyard/recipes/run/image_source.h"
#include "trainyard/recipes/tf_cnn/prepare.h"

namespace trainyard::recipes {

std::shared_ptr<data::BatchSource> make_source(const PreparedRun& run, data::Subset subset) {
  const bool train_images = subset == data::Subset::kTrain;
  ImageSourceOptions options;
  options.dataset = train_images ? run.train_data : run.validation_data;
  options.num_classes = run.num_classes;
  options.batch_size = train_images ? run.batch_size : run.eval_batch_size * run.replicas;
  options.replicas = train_images ? run.replicas : 1;
  options.training = train_images && run.mode() != RunMode::kForwardOnly;
  options.repeat = train_images || !run.eval_exact;
  options.epoch_size = train_images ? run.train_examples : run.validation_examples;
  if (train_images) {
    options.label_texts = run.label_texts;
  } else {
    options.label_texts = std::make_shared<data::LabelTexts>();
    options.known_texts = run.label_texts;
  }
  return make_image_source(run.input, run.device, options);
}

}  // namespace trainyard::recipes
