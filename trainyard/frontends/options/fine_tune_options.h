// What --finetune leaves to the run, because it follows from the data, the weights and the processor. All else that it
// sets are values of other flags (tf_cnn/fine_tuning.h).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trainyard::frontends {

struct FineTuneOptions {
  // Which settings no flag has given: the run chooses them.
  bool chooses_batch_size = true, chooses_epochs = true, chooses_warmup = true, chooses_early_stop = true;
  bool chooses_precision = true, chooses_label_smoothing = true, chooses_crop = true, chooses_freezing = true;
  // Names and values of the flags that --finetune has set, as the header shows them. The run adds its own.
  std::vector<std::pair<std::string, std::string>> chosen{};
  // What the run has chosen, saved in its checkpoints; 0: a flag has given it.
  int64_t batch_size = 0, num_epochs = 0, early_stop = 0;
};

}  // namespace trainyard::frontends
