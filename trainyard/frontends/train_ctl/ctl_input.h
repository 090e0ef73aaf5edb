// The images of the example: with and without its DALI pipeline, or synthetic ones.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/datasets/label_texts.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/pipeline/synthetic_source.h"
#include "trainyard/frontends/model/class_names.h"
#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/frontends/options/image_options.h"
#include "trainyard/frontends/options/input_settings.h"
#include "trainyard/frontends/train_ctl/train_ctl.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::frontends {

struct CtlInput {
  InputSettings settings;
  std::shared_ptr<const data::Dataset> train_data, validation_data;  // null: synthetic images
  std::shared_ptr<data::LabelTexts> label_texts;                     // of the training's records
  ClassNames classes;
  int64_t class_count = 0;                            // classes of the data, with names or not; 0: none
  int64_t train_samples = 0, validation_samples = 0;  // the second is 0 without validation data

  // Returns the training source, which repeats. Each device gets its own part of a step's batch.
  std::shared_ptr<data::BatchSource> training_source(const train::OpenDevices& device,
                                                     const TrainCtlParams& params) const;
  // Returns the validation source, with batches of all devices together. Not for synthetic images.
  std::shared_ptr<data::BatchSource> validation_source(const train::OpenDevices& device,
                                                       const TrainCtlParams& params) const;
};

// Returns how the run in log_dir, which this run continues, made its images; unset: there is none. With `ranks` rank 0,
// which has the log_dir, says it to all: collective, and a damaged checkpoint is an error on all of them.
[[nodiscard]] std::optional<TrainedInput> saved_ctl_input(const TrainCtlParams& params,
                                                          parallel::ProcessGroup* ranks = nullptr);

// Opens the data, whose images are made as `trained` says. `params` are valid. Throws as data sets do, and
// kInvalidArgument for more classes than the example's 1000.
CtlInput open_ctl_input(const TrainCtlParams& params, std::optional<TrainedInput> trained);

// Returns the example's synthetic images: a single batch that is repeated.
data::SyntheticSamples ctl_synthetic_samples();

}  // namespace trainyard::frontends
