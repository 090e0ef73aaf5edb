// The default boxes of SSD (Liu et al., "SSD: Single Shot MultiBox Detector", 2016, section 2.2): boxes of several
// sizes and shapes at each cell of the feature maps. A model predicts, for each, classes and four offsets from it.
//
//   const data::DefaultBoxes& defaults = data::DefaultBoxes::ssd300();
//   const data::EncodedBoxes truth = defaults.encode(boxes, labels);       // for training
//   const at::Tensor corners = defaults.decode(offsets);                   // of a model's output
//
// All coordinates are parts of the image: 0 is its upper or left edge, 1 its lower or right one. A box's corners are
// ymin, xmin, ymax, xmax; its centre and size are cy, cx, h, w.
//
// Offsets of a box from its default box are, with the scales of centres and sizes,
//   (cy - default cy) / default h / centre scale,  log(h / default h) / size scale,
// in the order of the model: ty, tx, th, tw for ssd300, tx, ty, tw, th for ssd300_vgg16.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/data/datasets/dataset.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// What training compares with a model's output.
struct EncodedBoxes {
  at::Tensor offsets{};  // [D, 4] float; zeros where nothing matches
  at::Tensor labels{};   // [D] int64; 0, the background, where nothing matches
  int64_t matched = 0;   // default boxes that match a box
};

// Many threads may use one at once.
class DefaultBoxes {
 public:
  // The 8,732 boxes of tf_cnn_benchmarks' ssd300 (and MLPerf's), in its order: by feature map of 38, 19, 10, 5, 3 and 1
  // cells a side, then by kind of box (4, 6, 6, 6, 4, 4), then by row, then by column. Computed in double precision,
  // rounded to float. Scales 0.1 and 0.2.
  [[nodiscard]] static const DefaultBoxes& ssd300();
  // The 8,732 boxes of torchvision's ssd300_vgg16 in its order: by feature map, row, column, then kind of box. Sizes
  // are at most 1, as of ssd300, but here centres may leave the image. Scales 0.1 and 0.2, which are the box coder's
  // weights 10 and 5.
  [[nodiscard]] static const DefaultBoxes& ssd300_vgg16();

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(corners_.size()) / 4; }
  // Return the boxes, [D, 4].
  [[nodiscard]] std::span<const float> corners() const { return corners_; }  // ymin, xmin, ymax, xmax
  [[nodiscard]] std::span<const float> centers() const { return centers_; }  // cy, cx, h, w
  // Return the same as tensors on the CPU, which share the memory: not to be written to.
  [[nodiscard]] at::Tensor corners_tensor() const;
  [[nodiscard]] at::Tensor centers_tensor() const;
  // Return the scales by which offsets of centres and of sizes are divided.
  [[nodiscard]] float center_scale() const { return 0.1F; }
  [[nodiscard]] float size_scale() const { return 0.2F; }
  // Returns where decode() cuts off offsets of sizes, times their scale.
  [[nodiscard]] double largest_log() const { return largest_log_; }
  // Returns true when offsets begin with x: tx, ty, tw, th.
  [[nodiscard]] bool x_first() const { return x_first_; }

  // Matches boxes with default boxes, as the argmax matcher of TensorFlow's object detection does: each default box
  // with the box of the largest intersection over union (the first of equal ones), if that is at least 0.5. Each box's
  // best default box matches it in any case; where two boxes have the same best one, the first. `labels` are from 1 on,
  // one a box. Boxes must be finite.
  [[nodiscard]] EncodedBoxes encode(std::span<const Box> boxes, std::span<const int64_t> labels) const;
  // Writes the same into memory: offsets [D, 4], classes [D]. Returns the number of matched default boxes.
  int64_t encode(std::span<const Box> boxes, std::span<const int64_t> labels, float* offsets, int64_t* classes) const;

  // Returns the corners [..., D, 4], ymin, xmin, ymax, xmax, that the offsets [..., D, 4] describe, on their device, in
  // float. They may leave the image.
  [[nodiscard]] at::Tensor decode(const at::Tensor& offsets) const;

 private:
  // `centers`: cy, cx, h, w of each box. `largest_log` bounds offsets of sizes so that they have an exponential.
  DefaultBoxes(const std::vector<double>& centers, bool x_first, double largest_log);

  std::vector<float> corners_, centers_;
  std::vector<float> columns_;  // [5, D]: the corners and the area of each box, for the loops of encode()
  bool x_first_;
  double largest_log_;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
