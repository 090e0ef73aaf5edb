// --finetune of `trainyard train`: trains a model further that has learned from other images, with settings for that.
// It is a set of defaults: whatever flag is given counts instead (docs/howto/fine_tune.md says why each is what it is).
//
// - Values that are the same for all data are set where flags are read: fine_tuning_flags.h.
// - Those that follow from the kind of the data and from the processor: settle_fine_tuned_input().
// - Those that follow from the number of images: settle_fine_tuning(). A run that continues takes the checkpoint's.
#pragma once

#include <cstdint>
#include <string>

#include "trainyard/frontends/tf_cnn/options.h"
#include "trainyard/frontends/tf_cnn/prepare.h"

namespace trainyard::frontends {

// The length of a fine-tuning by its number of training images.
struct FineTuningLength {
  int64_t batch_size = 0;  // images a step, over all devices
  int64_t num_epochs = 0;
};
// Returns small batches for few images, so that an epoch has about twelve steps or more, and more epochs the fewer
// images there are: 20,000 images pass in all, but at least 10 and at most 60 epochs.
[[nodiscard]] FineTuningLength fine_tuning_length(int64_t images);

// Chooses the floats of a CPU that multiplies bfloat16, before the devices are opened.
void settle_fine_tuned_precision(PreparedRun& run);
// Chooses crops, once the data set is known. Throws kUnsupported for data with boxes.
void settle_fine_tuned_input(PreparedRun& run);

// Chooses batch size, number of epochs, warm-up, early stop, label smoothing and freezing, once run.train_data is open.
void settle_fine_tuning(PreparedRun& run);
// Leaves out the early stop that was chosen where nothing will be evaluated.
void settle_fine_tuned_evaluations(PreparedRun& run);

// Returns the header's line: the flags that --finetune has set. Empty without it.
[[nodiscard]] std::string fine_tuning_line(const PreparedRun& run);

}  // namespace trainyard::frontends
