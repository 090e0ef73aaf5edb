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
  bool any() const { return min_score.has_value() || writes_files(); }
  // Returns whether images need ids, or names of drawings, of their own.
  bool writes_files() const { return !json_file.empty() || !drawn_folder.empty(); }
};

struct PlacedImage {
  std::string path{};
  int64_t place = 0;  // among all images that were named, counted from 1
};

// One thread at a time.
class DetectionOutput {
 public:
  // Makes the folder of drawings.
  DetectionOutput(frontends::Detector detector, DetectionOutputOptions options);

  // Notes the ids and the drawings' names of the next images, in the order of all of them, those that cannot be read
  // included. Throws kInvalidArgument for two images that would share a drawing, or an id in the file of all
  // detections, and for one that its drawing would replace.
  void claim(const std::vector<std::string>& images);

  // Detects in images that were claimed, whose outputs are [N, D, 4 + labels], and writes a line for each: "cat.jpg:
  // cat 0.912 at 10,20 300x200, ...", x, y, width and height in pixels, or with `json` {"image": "cat.jpg",
  // "detections": [{"category": 17, "name": "cat", "score": 0.912, "box": [10, 20, 300, 200]}]}. A line shows `most`
  // detections; files have all. Throws for an image that can no longer be read.
  void add(const std::vector<PlacedImage>& images, const at::Tensor& outputs, int64_t most, bool json,
           std::ostream& out);

  // Writes the file of all detections.
  void finish() const;

 private:
  void draw(const std::string& image, const std::vector<train::Detection>& detections);

  frontends::Detector detector_;
  DetectionOutputOptions options_;
  int64_t claimed_ = 0;  // images
  std::map<int64_t, std::string> image_of_id_;
  std::map<std::string, std::string> image_of_drawing_;
  std::vector<data::CocoDetection> all_;
};

}  // namespace trainyard::cli
