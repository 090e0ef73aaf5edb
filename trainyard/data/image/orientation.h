// EXIF's orientation: how a camera was held. Viewers turn images by it; tf.data, DALI and torchvision's decoders do
// not, unless they are asked to.
#pragma once

#include <cstddef>
#include <span>

#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Returns the tag Orientation (0x0112), 1 to 8, of a JPEG's APP1 segment without its length; 1 (as stored) where there
// is none or anything is out of order. EXIF 2.3, 4.6.
int exif_orientation(std::span<const std::byte> app1);

// Returns the same for the TIFF that such a segment holds behind its first six bytes, which is what a WebP's chunk EXIF
// has. Chunks that begin with the six bytes anyway are read, too.
int tiff_orientation(std::span<const std::byte> tiff);

// Returns the size of the turned image. From orientation 5 on, rows and columns change places.
ImageSize oriented_size(ImageSize stored, int orientation);
// Returns where `window` of the turned image lies in the stored one, whose size is `stored`.
CropWindow stored_window(const CropWindow& window, int orientation, ImageSize stored);
// Returns the stored image, or a part of it, turned.
Image oriented(const Image& stored, int orientation);

}  // namespace trainyard::data
