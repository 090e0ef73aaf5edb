// What a detection model's output means: its default boxes, how detections are made of it, and the categories.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/data/detection/default_boxes.h"
#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/train/evaluation/detection/detections.h"

namespace trainyard::frontends {

struct Detector {
  const data::DefaultBoxes& boxes;
  train::DetectOptions options{};     // for predictions: overlaps as others measure them
  std::vector<int64_t> categories{};  // COCO's id of each label
  std::vector<std::string> names{};   // of each label; empty for one that COCO does not use
};

// Returns nothing for a model that is no detector.
[[nodiscard]] std::optional<Detector> detector_of(const TrainedModel& trained);

}  // namespace trainyard::frontends
