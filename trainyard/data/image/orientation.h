// EXIF's orientation: how the camera was held. Viewers rotate images by it; tf.data, DALI and torchvision's decoders do
// not by default.
#pragma once

#include <cstddef>
#include <span>

#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Returns the tag Orientation (0x0112), 1 to 8, of a JPEG's APP1 segment without its length; 1 (as stored) where there
// is none or anything is out of order. EXIF 2.3, 4.6.
int exif_orientation(std::span<const std::byte> app1);

// Returns the same from the TIFF that such a segment holds after its first six bytes, which is also the content of a
// WebP's chunk EXIF. Chunks that begin with the six bytes anyway are read, too.
int tiff_orientation(std::span<const std::byte> tiff);

// Returns the size of the rotated image. From orientation 5 on, rows and columns are exchanged.
ImageSize oriented_size(ImageSize stored, int orientation);
// Returns the window of the stored image, whose size is `stored`, that corresponds to `window` of the rotated one.
CropWindow stored_window(const CropWindow& window, int orientation, ImageSize stored);
// A place in an image, as parts of its height and width.
struct ImagePoint {
  float y = 0, x = 0;
};
// Returns where a point of the stored image is in the rotated one.
ImagePoint oriented_point(ImagePoint stored, int orientation);
// Returns the stored image, or a part of it, rotated.
Image oriented(const Image& stored, int orientation);

}  // namespace trainyard::data
