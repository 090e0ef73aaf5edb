// Where the pixels of a model's image of ImageNet come from: which part of the file is decoded, and how it is sampled.
// Whoever decodes and samples, on which device, asks here: the same sample has the same window everywhere.
#pragma once

#include "trainyard/core/random/random.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/image/image.h"
#include "trainyard/data/image/resize.h"

namespace trainyard::data {

// `part` of the image is scaled to `size`, of which `window` is computed: resize(part, size, window, resize, out).
struct ImageSampling {
  CropWindow part;
  ImageSize size;
  CropWindow window;
  ResizeOptions resize;
};

class ImagenetSampling {
 public:
  // Throws kInvalidArgument as TransformOptions::validate().
  explicit ImagenetSampling(const TransformOptions& options);

  // The stream from which a training image's window, mirroring and colours are drawn, in this order.
  static core::RandomStream stream(const SampleKey& key);
  // A random window, half of them mirrored, scaled to the model's size whatever its aspect ratio. With the resize
  // method "crop" only `part` and resize.mirror mean something.
  ImageSampling training(ImageSize image, const Record& record, const SampleKey& key, core::RandomStream& random) const;
  // The whole image, scaled with its aspect ratio kept; the centre. Not with the resize method "crop".
  ImageSampling evaluation(ImageSize image, const SampleKey& key) const;

  // False for the resize method "crop".
  bool scales() const { return options_.resize_method != "crop"; }
  // True where nothing comes between scaling and normalization: `resize` then does both.
  bool normalizes_as_it_resizes() const;

 private:
  ResizeOptions resize_options(int64_t batch_position, bool mirror) const;
  ImageSize evaluation_size(ImageSize image) const;

  const TransformOptions options_;
  const ImageSize target_;
};

}  // namespace trainyard::data
