#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trainyard/train/monitors/encode_images.h"
#include "trainyard/train/monitors/monitors.h"

namespace trainyard::train {

std::string tensorboard_tag(std::string_view phase, std::string_view name) {
  if (phase == "eval" && name == "top_1_accuracy") name = "Accuracy@1";
  if (phase == "eval" && name == "top_5_accuracy") name = "Accuracy@5";
  return full_name(phase, name);
}

// The event file of a run, made with its first event.
struct TensorBoardMonitor::EventFile {
  std::string directory;
  int64_t start_step;
  core::FileSystem& files;
  formats::EventFileOptions options;
  std::optional<formats::EventFileWriter> events{};

  void write(formats::Event event) {
    if (!events) {
      events.emplace(files, directory, options);
      events->write({.wall_time = event.wall_time, .step = start_step + 1, .session_start = true});
    }
    events->write(std::move(event));
  }
};

TensorBoardMonitor::TensorBoardMonitor(std::string directory, int64_t start_step, core::FileSystem& files)
    : TensorBoardMonitor(std::move(directory), start_step, files, {}) {}

TensorBoardMonitor::TensorBoardMonitor(std::string directory, int64_t start_step, core::FileSystem& files,
                                       formats::EventFileOptions options)
    : file_(new EventFile{std::move(directory), start_step, files, std::move(options)}) {}

void TensorBoardMonitor::write(const Scalars& scalars) {
  formats::Event event{.wall_time = scalars.wall_time, .step = scalars.global_step};
  for (const auto& [name, value] : scalars.values) {
    event.values.push_back({.tag = tensorboard_tag(scalars.phase, name), .value = static_cast<float>(value)});
  }
  file_->write(std::move(event));
}

void TensorBoardMonitor::write_histograms(const Histograms& histograms) {
  formats::Event event{.wall_time = histograms.wall_time, .step = histograms.global_step};
  for (const auto& [name, histogram] : histograms.values) event.values.push_back({.tag = name, .value = histogram});
  file_->write(std::move(event));
}

void TensorBoardMonitor::write_images(const Images& images) {
  formats::Event event{.wall_time = images.wall_time, .step = images.global_step};
  for (const auto& [name, image] : images.values) {
    std::vector<formats::EncodedImage> encoded = encode_images(image);
    for (size_t i = 0; i < encoded.size(); ++i) {
      const std::string tag = image.dim() == 4 ? fmt::format("{}/image/{}", name, i) : name;
      event.values.push_back({.tag = tag, .value = std::move(encoded[i])});
    }
  }
  file_->write(std::move(event));
}

void TensorBoardMonitor::write_texts(const Texts& texts) {
  formats::Event event{.wall_time = texts.wall_time, .step = texts.global_step};
  for (const auto& [name, text] : texts.values) {
    event.values.push_back({.tag = name, .value = formats::SummaryText{text}});
  }
  file_->write(std::move(event));
}

void TensorBoardMonitor::flush() {
  if (file_->events) file_->events->flush();
}

void TensorBoardMonitor::close() {
  if (file_->events) file_->events->close();
  file_->events.reset();
}

}  // namespace trainyard::train
