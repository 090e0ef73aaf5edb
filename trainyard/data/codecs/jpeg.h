// Decodes and encodes JPEG files with libjpeg-turbo.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Returns the size that the header says, decoding nothing, or kCorruptData when there is none.
core::Result<ImageSize> read_jpeg_size(std::span<const std::byte> bytes, bool exif_orientation = false);

// Returns the orientation in the EXIF data, 1 to 8 (orientation.h); 1 where there is none or the header is broken.
int read_jpeg_orientation(std::span<const std::byte> bytes);

// Returns why decoders may give different pixels for this file, or an empty text. They agree on a complete file of 8
// bits, gray or YCbCr, Huffman coded, and with `exif_orientation` one that needs no rotation.
std::string unusual_jpeg(std::span<const std::byte> bytes, bool exif_orientation = false);

// Decodes the image, or only `crop` of it. Rows above the crop are skipped and nothing below it is read, so damage
// there is not detected. The pixels are bit for bit those of the whole image. Baseline and progressive files in gray,
// YCbCr, RGB, CMYK and YCCK (Adobe's are stored inverted) all become RGB, by the accurate DCT with smooth chroma
// upsampling. Returns kCorruptData where the file is no JPEG or is truncated, is larger than the limits, or the crop is
// not inside. Messages do not name the file: the caller adds it.
core::Result<Image> decode_jpeg(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop = {},
                                const DecodeOptions& options = {});

enum class ChromaSubsampling { k444, k420 };

// Encodes RGB pixels as a baseline JPEG. `quality` is in [1, 100]. Throws kInvalidArgument for an empty image.
std::vector<std::byte> encode_jpeg(const Image& image, int quality = 95,
                                   ChromaSubsampling subsampling = ChromaSubsampling::k420);

}  // namespace trainyard::data
