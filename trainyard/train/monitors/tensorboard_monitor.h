// TensorBoard: values as scalars in an event file of the train directory (docs/formats/event_file.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trainyard/formats/logs/event_file.h"
#include "trainyard/train/monitors/monitor.h"

namespace trainyard::train {

// Each run writes a file of its own, made with the first value.
class TensorBoardMonitor : public Monitor {
 public:
  // `start_step`: where the run begins or goes on; TensorBoard then drops what earlier files of the directory say of
  // later steps, which a run that was cut off has left there. It drops those of the step that a session starts with,
  // too, so this says the one after.
  TensorBoardMonitor(std::string directory, int64_t start_step, core::FileSystem& files = core::local_file_system(),
                     formats::EventFileOptions options = {});

  void write(const Scalars& scalars) override;
  void flush() override;
  void close() override;

 private:
  std::string directory_;
  int64_t start_step_;
  core::FileSystem& files_;
  formats::EventFileOptions options_;
  std::optional<formats::EventFileWriter> events_;
};

// Names of the train phase as they are; of the eval phase under "eval/", top-k accuracies as upstream calls them:
// "eval/Accuracy@1".
std::string tensorboard_tag(std::string_view phase, std::string_view name);

}  // namespace trainyard::train
