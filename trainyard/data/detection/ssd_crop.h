// SSD's random crops (Liu et al., "SSD: Single Shot MultiBox Detector", 2016, section 2.2, as tf_cnn_benchmarks draws
// them).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "trainyard/core/random/random.h"
#include "trainyard/data/datasets/dataset.h"

namespace trainyard::data {

struct SsdCrop {
  Box part{};                  // of the image
  std::vector<size_t> kept{};  // numbers of the boxes whose centre is in the part; of the whole image, all
};

// Draws a part of the image. With probability 1 / 7 it is the whole image. Otherwise a smallest overlap is drawn from
// 0, 0.1, 0.3, 0.5, 0.7 and 0.9, and up to 50 parts, of sides in [0.3, 1): the first is taken whose aspect ratio is in
// (1/2, 2), that has the centre of a box, and whose intersection over union with each of the boxes is above the
// smallest overlap. Where none is, all is drawn again, from the choice of the whole image on.
//
// The distribution is the original's, which draws all 50 parts and takes the last one that holds.
[[nodiscard]] SsdCrop draw_ssd_crop(std::span<const Box> boxes, core::RandomStream& random);

// Returns the boxes as parts of `crop.part`, clipped to it.
[[nodiscard]] std::vector<Box> crop_boxes(std::span<const Box> boxes, const SsdCrop& crop);

}  // namespace trainyard::data
