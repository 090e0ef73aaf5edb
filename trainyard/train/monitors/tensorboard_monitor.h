// Writes scalars, histograms, images and texts for TensorBoard, in an event file of the train directory
// (docs/formats/event_file.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/monitors/monitor.h"

namespace trainyard::formats {
struct EventFileOptions;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Writes one event file a run, made with the first value.
class TensorBoardMonitor : public Monitor {
 public:
  // `start_step` is where the run begins or continues. TensorBoard then drops the values of later steps in earlier
  // files of the directory, which an interrupted run has left there. It would also drop those of the step at which a
  // session starts, so the file names the next one.
  TensorBoardMonitor(std::string directory, int64_t start_step, core::FileSystem& files = core::local_file_system());
  // Also sets when the file is flushed and what its name says.
  TensorBoardMonitor(std::string directory, int64_t start_step, core::FileSystem& files,
                     formats::EventFileOptions options);

  void write(const Scalars& scalars) override;
  void write_histograms(const Histograms& histograms) override;
  // Writes PNG. Several images of one name, [N, 3, H, W], get the tags "name/image/0", "name/image/1", as in
  // TensorFlow.
  void write_images(const Images& images) override;
  void write_texts(const Texts& texts) override;
  void flush() override;
  void close() override;

 private:
  struct EventFile;
  std::shared_ptr<EventFile> file_;
};

// Returns full_name(), with the top-k accuracies of the phase "eval" as tf_cnn_benchmarks calls them:
// "eval/Accuracy@1".
[[nodiscard]] std::string tensorboard_tag(std::string_view phase, std::string_view name);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
