// Reads COCO's annotations and reads and writes detections, both JSON (docs/formats/coco.md).
//
//   const data::CocoAnnotations truth =
//       data::read_coco_annotations("coco/annotations/instances_val2017.json", core::local_file_system());
//   data::write_coco_detections("detections.json", detections, core::local_file_system());
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

struct CocoCategory {
  int64_t id = 0;
  std::string name{}, supercategory{};
  bool operator==(const CocoCategory&) const = default;
};

struct CocoImage {
  int64_t id = 0;
  std::string file_name{};
  int width = 0, height = 0;  // pixels
  bool operator==(const CocoImage&) const = default;
};

// A box of an object. A crowd's box surrounds many objects of its category.
struct CocoBox {
  int64_t id = 0, image_id = 0, category_id = 0;
  double x = 0, y = 0, width = 0, height = 0;  // pixels; x and y are those of the left upper corner
  double area = 0;                             // pixels of the object's mask
  bool crowd = false;
  bool operator==(const CocoBox&) const = default;
};

struct CocoAnnotations {
  std::vector<CocoCategory> categories{};
  std::vector<CocoImage> images{};
  std::vector<CocoBox> boxes{};
  bool operator==(const CocoAnnotations&) const = default;
};

// Returns true for a file name that stays inside of the folder of images: not empty, not absolute, without "..".
[[nodiscard]] bool is_coco_file_name(std::string_view name);

// Reads a file such as instances_val2017.json: all categories, images and boxes, in the file's order. Other fields are
// passed over, whatever they hold: masks, licenses, captions. A box may have no area or leave its image: training
// leaves such boxes out (coco_dataset.h), metrics see them.
//
// Reads the file in parts and keeps none of the text, so that memory grows with what is returned. Throws kNotFound for
// a missing file and kCorruptData, with path and byte, for text that is no JSON (JSON has no NaN), for fields that are
// missing or of another type, numbers that are not finite or out of range, ids that occur twice, boxes whose image or
// category is unknown, and names that reach out of the folder of images.
[[nodiscard]] CocoAnnotations read_coco_annotations(const std::string& path, core::FileSystem& files);
[[nodiscard]] CocoAnnotations read_coco_annotations(const core::ReadableFile& file);

// Returns the annotations as JSON, which read_coco_annotations() reads back unchanged. Throws kInvalidArgument for
// numbers that are not finite.
[[nodiscard]] std::string coco_annotations_json(const CocoAnnotations& annotations);

// A box that a model has found.
struct CocoDetection {
  int64_t image_id = 0, category_id = 0;
  double x = 0, y = 0, width = 0, height = 0;  // pixels
  double score = 0;
  bool operator==(const CocoDetection&) const = default;
};

// Reads COCO's format of results: [{"image_id": 1, "category_id": 18, "bbox": [x, y, w, h], "score": 0.9}, ...].
// Throws as read_coco_annotations() does.
[[nodiscard]] std::vector<CocoDetection> read_coco_detections(const std::string& path, core::FileSystem& files);
[[nodiscard]] std::vector<CocoDetection> read_coco_detections(const core::ReadableFile& file);

// Returns the detections in COCO's format of results, with the shortest text of each number that gives the same double.
// Throws kInvalidArgument for numbers that are not finite.
[[nodiscard]] std::string coco_detections_json(std::span<const CocoDetection> detections);
// Writes coco_detections_json() to a file, whole or not at all.
void write_coco_detections(const std::string& path, std::span<const CocoDetection> detections, core::FileSystem& files);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
