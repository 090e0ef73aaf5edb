// Batches for detectors without data: random images, in which nothing is found but the background.
#pragma once

#include <cstdint>
#include <memory>

#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/frontends/input/image_source.h"

namespace trainyard::frontends {

struct SyntheticBoxesOptions {
  int64_t height = 300, width = 300;  // pixels
  int64_t default_boxes = 8732;       // of an image
  uint64_t seed = 0;
};

// Returns a source of "images" [N, 3, height, width], uniform in [0, 1), "boxes" [N, default_boxes, 4], uniform in [0,
// 1), "classes" [N, default_boxes], all 0, and "num_matched" [N], 1 to 9, as tf_cnn_benchmarks draws them for ssd300.
// Images and boxes are the same in each batch of a replica. `source` says batch size and replicas.
std::shared_ptr<data::BatchSource> make_synthetic_boxes(const SyntheticBoxesOptions& options,
                                                        const ImageSourceOptions& source);

}  // namespace trainyard::frontends
