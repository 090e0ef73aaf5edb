// Finds out how a COCO data set is stored:
//
//   JSON       DIR/annotations/instances_train2017.json with images in DIR/train2017 or DIR/images/train2017, the same
//              with val2017; another year where there is only one
//   TFRecords  DIR/train-*-of-*, DIR/coco_train-*-of-* or DIR/coco_train.record-*-of-*; with validation or val for
//              train: as tf_cnn_benchmarks and TensorFlow's object detection name them
//
// Shards can also be named, as of other data sets (datasets/dataset_form.h).
#pragma once

#include <string>
#include <vector>

#include "trainyard/data/datasets/dataset.h"

namespace trainyard::data {

struct StoredCoco {
  std::string annotations{};          // path of the JSON; empty: TFRecords
  std::string images{};               // folder of the JSON's images
  std::vector<std::string> shards{};  // TFRecords, sorted
};

// Returns how the subset is stored; JSON where both forms are there. Throws NoSuchSubset with what the directory holds
// instead, kNotFound when there is no directory, and kCorruptData when it is not written to its end.
[[nodiscard]] StoredCoco find_coco(const DatasetOptions& options);

// Returns true when the directory holds annotations of COCO in JSON, or TFRecords with COCO's names (coco_train-*).
[[nodiscard]] bool holds_coco(core::FileSystem& files, const std::string& directory);

}  // namespace trainyard::data
