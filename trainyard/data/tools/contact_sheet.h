// Draws many samples in one picture: each as it is stored and, next to it, as the model gets it.
#pragma once

#include <cstdint>
#include <vector>

#include "trainyard/data/augment/transform.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/image/image.h"
#include "trainyard/data/pipeline/sample_order.h"

namespace trainyard::data {

struct ContactSheetOptions {
  TransformOptions transform{};
  int64_t count = 16;       // samples, from the first of the epoch's order on
  int64_t batch_size = 32;  // batch size of a device, for transforms that depend on the position in the batch
  int64_t epoch = 0;
  uint64_t seed = 0;
  OrderOptions order{};
};

struct ContactSheet {
  Image image;
  struct Cell {
    int64_t sample = 0;                 // index in the data set
    int64_t label = 0;                  // as the data set counts
    std::vector<int64_t> labels{};      // of a data set with has_label_sets(), instead of `label`
    std::vector<int64_t> box_labels{};  // of a data set of boxed objects, instead of `label`
    std::string where;
  };
  std::vector<Cell> cells;  // in rows, from the top
};

// Draws pairs of the transform's size with four pixels between them, in a picture about as wide as high. The original
// is scaled to fit. Boxes of objects are drawn into both, with their names. What the model gets is turned back to [0,
// 255], and values outside of that are cut. Throws the error of a bad sample, and kInvalidArgument for more samples
// than there are.
ContactSheet make_contact_sheet(const Dataset& dataset, const Transform& transform, const ContactSheetOptions& options);

}  // namespace trainyard::data
