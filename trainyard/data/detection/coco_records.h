// COCO in TFRecords: tf.Examples in the schema of TensorFlow's object detection, and with a feature of ours that
// has all of the annotations in full precision (docs/formats/coco.md).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/data/detection/coco_annotations.h"
#include "trainyard/data/detection/coco_dataset.h"
#include "trainyard/formats/records/tf_example.h"

namespace trainyard::data {

// What a record says of its image.
struct CocoRecord {
  CocoImage image{};
  std::vector<CocoBox> boxes{};
  bool numbered = true;  // false: the boxes have no ids in the record
};

// Returns the annotations of a record; kCorruptData, which names the feature, for lists of different lengths, numbers
// that are not finite, coordinates outside of [0, 1], categories that are not COCO's, an id that is no number.
core::Result<CocoRecord> parse_coco_example(const formats::ExampleView& example);

// Returns a record of an image. `boxes` are its boxes. Lists of the schema have those that is_usable() accepts.
[[nodiscard]] std::string coco_example(const CocoImage& image, const std::vector<CocoBox>& boxes,
                                       const std::vector<CocoCategory>& categories, std::string_view encoded);

// Returns the name of the file that lists the categories of a subset's records, next to these: the names and
// supercategories of COCO's JSON. Without it, categories are COCO's.
[[nodiscard]] std::string coco_categories_file(Subset subset);

// Opens shards. Reads of each record what is not its image, without checking its checksum; read() checks that. A record
// that cannot be parsed stays a sample, so that reading it says why.
[[nodiscard]] std::unique_ptr<CocoDataset> open_coco_records(const std::vector<std::string>& shards, Subset subset,
                                                             core::FileSystem& files);

}  // namespace trainyard::data
