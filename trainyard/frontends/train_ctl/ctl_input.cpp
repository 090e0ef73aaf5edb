#include "trainyard/frontends/train_ctl/ctl_input.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/frontends/input/image_source.h"
#include "trainyard/frontends/session/saved_run.h"
#include "trainyard/frontends/train_ctl/ctl_plan.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/parallel/process_group/shared_outcome.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::frontends {
namespace {

constexpr const char* kDataset = "imagenet";
constexpr int64_t kDaliThreads = 4;

std::optional<TrainedInput> read_saved_input(const TrainCtlParams& params) {
  if (params.log_dir.empty()) return std::nullopt;
  const std::vector<train::CheckpointInfo> saved = train::CheckpointStore(params.log_dir).list();
  if (saved.empty()) return std::nullopt;
  const train::CheckpointFacts facts = train::read_checkpoint_facts(saved.back());
  if (!facts.input) return std::nullopt;
  return TrainedInput{.input = *facts.input, .preprocessor = facts.preprocessor, .origin = saved.back().path};
}

InputOptions input_options(const TrainCtlParams& params, std::optional<TrainedInput> trained) {
  InputOptions options;
  options.data_name = kDataset;
  options.data_dir = params.data_dir;
  options.data_index_dir = params.data_idx_dir;
  options.seed = params.seed;
  if (params.dali_threads || params.uses_dali()) {
    options.threads = static_cast<int>(params.dali_threads.value_or(kDaliThreads));
  }
  options.images.fixed_eval_size = true;
  options.images.trained = std::move(trained);
  if (params.uses_dali() || !options.images.trained) {
    options.images.input_preprocessor = params.uses_dali() ? "dali" : "resnet_n";
  }
  options.images.distortions = params.distort_color;
  options.decode_on_gpu = params.dali_mode == "GPU";
  return options;
}

}  // namespace

data::SyntheticSamples ctl_synthetic_samples() {
  return {.mean = 112, .standard_deviation = 70, .clipped = true, .fixed_labels = true};
}

std::optional<TrainedInput> saved_ctl_input(const TrainCtlParams& params, parallel::ProcessGroup* ranks) {
  if (ranks == nullptr) return read_saved_input(params);
  std::optional<TrainedInput> own;
  const std::string text = parallel::on_first(*ranks, "how the saved run made its images", [&] {
    own = read_saved_input(params);
    return own ? encode_trained_input(*own) : "";
  });
  if (ranks->rank() == 0 || text.empty()) return own;
  return decode_trained_input(text);
}

CtlInput open_ctl_input(const TrainCtlParams& params, std::optional<TrainedInput> trained) {
  CtlInput input;
  input.settings = settle_input(input_options(params, std::move(trained)), kDataset,
                                {*params.image_height, *params.image_width}, static_cast<int>(params.devices));
  input.label_texts = std::make_shared<data::LabelTexts>();
  if (params.data_dir.empty()) {
    input.train_samples = kCtlSyntheticTrainSamples;
    return input;
  }
  input.train_data = open_dataset(input.settings, data::Subset::kTrain);
  input.classes = class_names_of(*input.train_data, models::find_dataset(kDataset), kCtlClasses);
  input.class_count = class_count_of(*input.train_data);
  constexpr const char* kTraining = "the training images";
  if (!input.classes.names.empty()) {
    input.label_texts->set_names(input.classes.names, input.classes.first_output, kTraining);
  }
  input.validation_data = open_dataset(input.settings, data::Subset::kValidation,
                                       {input.classes.names, kTraining, input.settings.on_unknown_class});
  input.train_samples = input.train_data->size();
  input.validation_samples = input.validation_data->size();
  return input;
}

std::shared_ptr<data::BatchSource> CtlInput::training_source(const train::OpenDevices& device,
                                                             const TrainCtlParams& params) const {
  return make_image_source(settings, device,
                           {.dataset = train_data,
                            .num_classes = kCtlClasses,
                            .batch_size = *params.batch_size,
                            .replicas = static_cast<int>(params.devices),
                            .first_replica = device.rank() * static_cast<int>(params.devices),
                            .total_replicas = device.ranks() * static_cast<int>(params.devices),
                            .epoch_size = train_samples,
                            .synthetic = ctl_synthetic_samples(),
                            .label_texts = label_texts});
}

std::shared_ptr<data::BatchSource> CtlInput::validation_source(const train::OpenDevices& device,
                                                               const TrainCtlParams& params) const {
  return make_image_source(settings, device,
                           {.dataset = validation_data,
                            .num_classes = kCtlClasses,
                            .batch_size = *params.batch_size * params.devices,
                            .first_replica = device.rank(),
                            .total_replicas = device.ranks(),
                            .training = false,
                            .label_texts = std::make_shared<data::LabelTexts>(),
                            .known_texts = label_texts});
}

}  // namespace trainyard::frontends
