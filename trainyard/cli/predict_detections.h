// What `trainyard predict` makes of the outputs of a detection model: lines, COCO's JSON, drawings.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/data/detection/coco_annotations.h"
#include "trainyard/frontends/model/detector.h"

namespace trainyard::cli {

struct DetectionOutputOptions {
  std::optional<double> min_score{};  // unset: the detector's own
  std::string json_file{};            // COCO's JSON of all detections; empty: not written
  std::string drawn_folder{};         // drawn images, as PNG; empty: none
  // Returns whether any of them is set.
  bool any() const { return min_score.has_value() || !json_file.empty() || !drawn_folder.empty(); }
};

// One thread at a time.
class DetectionOutput {
 public:
  // Makes the folder of drawings.
  DetectionOutput(frontends::Detector detector, DetectionOutputOptions options);

  // Detects in images, whose outputs are [N, D, 4 + labels], and writes a line for each: "cat.jpg: cat 0.912 at 10,20
  // 300x200, ...", x, y, width and height in pixels, or with `json` {"image": "cat.jpg", "detections": [{"category":
  // 17, "name": "cat", "score": 0.912, "box": [10, 20, 300, 200]}]}. A line shows `most` detections; files have all.
  // Throws for an image that can no longer be read, and kInvalidArgument for two images that would share a drawing, or
  // an id in the file of all detections.
  void add(const std::vector<std::string>& images, const at::Tensor& outputs, int64_t most, bool json,
           std::ostream& out);

  // Writes the file of all detections.
  void finish() const;

 private:
  void draw(const std::string& image, const std::vector<train::Detection>& detections);
  // Returns the images' ids. Notes them, and the names of drawings.
  std::vector<int64_t> ids_of(const std::vector<std::string>& images);

  frontends::Detector detector_;
  DetectionOutputOptions options_;
  int64_t images_ = 0;
  std::map<int64_t, std::string> image_of_id_;
  std::map<std::string, std::string> image_of_drawing_;
  std::vector<data::CocoDetection> all_;
};

}  // namespace trainyard::cli
