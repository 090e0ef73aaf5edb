#include "trainyard/frontends/tf_cnn/fine_tuning.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/frontends/tf_cnn/freezing.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/train/devices/open_devices.h"

namespace trainyard::frontends {
namespace {

using core::Error;
using core::ErrorCode;

constexpr const char* kCrop = "0.35,1";
constexpr double kLabelSmoothing = 0.1;
constexpr double kHeadAlonePart = 0.1, kWarmupPart = 0.05;  // of the training

// Removes a setting from the header's line. Returns false where it is not there, because the user has given the flag.
bool remove_chosen(PreparedRun& run, const std::string& flag) {
  return std::erase_if(run.options.fine_tune->chosen, [&](const auto& each) { return each.first == flag; }) > 0;
}

// Sets a value of the flags that the run's files record.
void record_value(PreparedRun& run, const std::string& flag, const core::FlagValue& value) {
  for (auto& [name, recorded] : run.options.flags.all) {
    if (name == flag) recorded = value;
  }
}

// Adds a setting to the header's line, and to the flags that the run's files record.
void choose(PreparedRun& run, const std::string& flag, const std::string& text, const core::FlagValue& value) {
  remove_chosen(run, flag);
  run.options.fine_tune->chosen.emplace_back(flag, text);
  record_value(run, flag, value);
}

// Returns the evaluations without a better one for which a training of so many epochs continues: a quarter of them.
int64_t patience_of(double epochs) {
  constexpr double kLeast = 5, kMost = 1e9;
  return static_cast<int64_t>(std::clamp(std::ceil(epochs / 4), kLeast, kMost));
}

// The part of a setting that a run continues with: the checkpoint's, where it has one.
int64_t continued(int64_t saved, int64_t rule) {
  return saved > 0 ? saved : rule;
}

// Takes back the rate of the head where optimizers have no groups of parameters.
void settle_rate_of_head(PreparedRun& run) {
  const std::string flag = "parameter_groups";
  if (run.device.accelerators.empty() || !remove_chosen(run, flag)) return;
  run.options.update.groups.clear();
  record_value(run, flag, std::vector<std::string>());
  core::log::info("the last layer learns as fast as all others: groups of parameters do not work on accelerators yet");
}

// Freezes all layers but the head in a first part of the epochs.
void choose_freezing(PreparedRun& run, double epochs) {
  if (!run.device.accelerators.empty()) {
    core::log::info("all layers train from the first epoch: parameters cannot be frozen on accelerators yet");
    return;
  }
  const double end = std::max(kHeadAlonePart * epochs, 1e-6);
  run.options.freeze.epochs.push_back({.pattern = kBackbone, .end = end});
  const std::string text = fmt::format("{}:{:g}", kBackbone, end);
  choose(run, "freeze_until", text, std::vector<std::string>{text});
}

}  // namespace

FineTuningLength fine_tuning_length(int64_t images) {
  constexpr int64_t kSteps = 12, kLeastBatch = 8, kMostBatch = 32, kMany = 5000, kMostBatchOfMany = 64;
  constexpr int64_t kImagesInAll = 20'000, kLeastEpochs = 10, kMostEpochs = 60;
  const int64_t most = images < kMany ? kMostBatch : kMostBatchOfMany;
  const auto power_of_two =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(images / kSteps, 1))));
  const int64_t epochs =
      std::clamp((kImagesInAll + images - 1) / std::max<int64_t>(images, 1), kLeastEpochs, kMostEpochs);
  return {.batch_size = std::clamp(power_of_two, kLeastBatch, most), .num_epochs = epochs};
}

void settle_fine_tuned_precision(PreparedRun& run) {
  if (!run.options.fine_tune || !run.options.fine_tune->chooses_precision || run.options.qat) return;
  DeviceOptions& device = run.options.device;
  if (device.gpu.value_or(train::gpu_count() > 0) || !core::cpu_has_avx512_bf16()) return;
  device.use_bf16 = true;
  choose(run, "use_bf16", "true", true);
}

void settle_fine_tuned_input(PreparedRun& run) {
  if (!run.options.fine_tune) return;
  const FineTuneOptions& asked = *run.options.fine_tune;
  const models::DatasetInfo& data = models::find_dataset(run.input.dataset);
  if (data.family == models::DatasetFamily::kCoco) {
    throw Error(ErrorCode::kUnsupported, {.problem = "--finetune is for classifiers",
                                          .where = run.options.model,
                                          .remedy = "train a detector with --backbone_model_path or --weights alone"});
  }
  // Small images of a data set of its own are not cropped by area.
  if (asked.chooses_crop && run.input.dataset == "imagenet") {
    const auto comma = std::string_view(kCrop).find(',');
    run.options.input.images.random_crop_area = ImageOptions::Range{std::stof(std::string(kCrop).substr(0, comma)),
                                                                    std::stof(std::string(kCrop).substr(comma + 1))};
    choose(run, "random_crop_area", kCrop, std::string(kCrop));
  }
}

void settle_fine_tuning(PreparedRun& run) {
  if (!run.options.fine_tune) return;
  if (run.train_data == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "the images are not in files, so that their number is not known",
                 .where = "--finetune",
                 .remedy = "set the options of the training by hand"});
  }
  TfCnnOptions& options = run.options;
  FineTuneOptions& asked = *options.fine_tune;
  const FineTuningLength length = fine_tuning_length(run.train_data->size());
  const train::SavedFineTuning saved =
      run.saved.continues ? run.saved.fine_tuning.value_or(train::SavedFineTuning()) : train::SavedFineTuning();
  const auto choose_number = [&run](const char* flag, int64_t number) {
    choose(run, flag, std::to_string(number), number);
  };
  // Each is chosen once, although the data of a run may be opened again.
  if (std::exchange(asked.chooses_batch_size, false)) {
    const int64_t replicas = int64_t{run.total_replicas()} * options.micro_steps;
    options.batch_size = continued(saved.batch_size, std::max<int64_t>(1, length.batch_size / replicas));
    run.batch_size = options.batch_size;
    if (run.own.model != nullptr) run.own.model->set_batch_size(run.batch_size);
    if (options.eval_batch_size == 0) run.eval_batch_size = run.batch_size;
    choose_number("batch_size", options.batch_size);
    asked.batch_size = options.batch_size;
  }
  if (std::exchange(asked.chooses_epochs, false)) {
    asked.num_epochs = continued(saved.num_epochs, length.num_epochs);
    options.steps.num_epochs = static_cast<double>(asked.num_epochs);
    choose(run, "num_epochs", std::to_string(asked.num_epochs), *options.steps.num_epochs);
  }
  const double epochs = train::batches_and_epochs(options.steps.num_batches, options.steps.num_epochs,
                                                  run.examples_per_step(), run.train_data->size())
                            .epochs;
  if (std::exchange(asked.chooses_warmup, false)) {
    options.learning_rate.warmup_epochs = kWarmupPart * epochs;
    choose(run, "num_learning_rate_warmup_epochs", fmt::format("{:g}", kWarmupPart * epochs), kWarmupPart * epochs);
  }
  if (std::exchange(asked.chooses_early_stop, false)) {
    // The epochs of whole batches may be a little more than those that were asked for.
    const double asked_epochs = options.steps.num_epochs.value_or(0);
    asked.early_stop = continued(saved.early_stop, patience_of(asked_epochs > 0 ? asked_epochs : epochs));
    options.early_stop = asked.early_stop;
  }
  if (std::exchange(asked.chooses_label_smoothing, false) && !run.train_data->has_label_sets()) {
    options.loss.label_smoothing = kLabelSmoothing;
    choose(run, "label_smoothing", fmt::format("{:g}", kLabelSmoothing), kLabelSmoothing);
  }
  if (std::exchange(asked.chooses_freezing, false)) choose_freezing(run, epochs);
  settle_rate_of_head(run);
  if (run.saved.continues && !run.saved.fine_tuning && run.device.is_chief()) {
    core::log::warning("{} was begun without --finetune: its settings are those of this command from here on",
                       run.saved.origin);
  }
}

void settle_fine_tuned_evaluations(PreparedRun& run) {
  if (!run.options.fine_tune || run.options.fine_tune->early_stop == 0) return;
  if (run.mode() == RunMode::kTrainingAndEvaluation) {
    choose(run, "early_stop", std::to_string(run.options.fine_tune->early_stop), run.options.fine_tune->early_stop);
    return;
  }
  run.options.early_stop.reset();
  run.options.fine_tune->early_stop = 0;
  core::log::info("nothing is evaluated, so that no evaluation ends this training early");
}

std::string fine_tuning_line(const PreparedRun& run) {
  if (!run.options.fine_tune) return "";
  std::vector<std::string> parts;
  for (const auto& [flag, value] : run.options.fine_tune->chosen) parts.push_back(fmt::format("--{}={}", flag, value));
  return fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace trainyard::frontends
