// Decides which part of an ImageNet file is decoded, and how it is sampled into the model's image. The decoders and
// samplers of all devices use it, so that a sample has the same window everywhere.
#pragma once

#include "trainyard/core/random/random.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/image/color.h"
#include "trainyard/data/image/image.h"
#include "trainyard/data/image/resize.h"
#include "trainyard/data/image/resize_convention.h"

namespace trainyard::data {

// How one image is made: `part` of the file is scaled to `size`, and only `window` of the result is computed, by
// resize(part, size, window, resize, out).
struct ImageSampling {
  CropWindow part;
  ImageSize size;
  CropWindow window;
  ResizeOptions resize;
};

class ImagenetSampling {
 public:
  // The shorter side before evaluation's central crop, as a multiple of the target's, without eval_resize_size: 224
  // becomes 256.
  static constexpr float kEvaluationScale = 1.145F;

  // Throws kInvalidArgument as TransformOptions::validate() does.
  explicit ImagenetSampling(const TransformOptions& options);

  // Returns the stream from which a training image's window, mirroring and colours are drawn, in this order.
  static core::RandomStream stream(const SampleKey& key);
  // Draws a random window, which half of the time is mirrored, scaled to the model's size whatever its aspect ratio.
  // With the resize method "crop" only `part` and resize.mirror are used.
  ImageSampling training(ImageSize image, const Record& record, const SampleKey& key, core::RandomStream& random) const;
  // Returns the centre of the whole image, which is scaled with its aspect ratio kept; with eval_central_part, the
  // centre scaled whatever its aspect ratio. Not for the resize method "crop".
  ImageSampling evaluation(ImageSize image, const SampleKey& key) const;
  // Returns how large a whole image must be for evaluation to lose nothing by decoding it smaller than it is.
  ImageSize whole_at_least() const;

  // Returns false for the resize method "crop".
  bool scales() const { return options_.resize_method != "crop"; }
  // Returns true when no step comes between scaling and normalization: `resize` then does both.
  bool normalizes_as_it_resizes() const;
  // Returns how options.distortions change colours at this position of the batch.
  ColorDistortion color_distortion(int64_t batch_position) const;

 private:
  ResizeOptions resize_options(int64_t batch_position, bool mirror) const;
  ScaledSize evaluation_size(ImageSize image) const;
  int central_margin(int side) const;  // pixels that the central crop removes at each end of a side

  const TransformOptions options_;
  const ImageSize target_;
};

}  // namespace trainyard::data
