// JPEG files to RGB pixels and back: libjpeg-turbo.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Size from the header, decoding nothing. kCorruptData when there is none.
core::Result<ImageSize> read_jpeg_size(std::span<const std::byte> bytes, bool exif_orientation = false);

// Why decoders may differ about this file, or an empty text: a whole file of 8 bits in gray or YCbCr, Huffman coded, is
// what all of them understand alike.
std::string unusual_jpeg(std::span<const std::byte> bytes);

// Decodes the image, or only `crop` of it: rows above are skipped and nothing is read behind the last row, so damage
// there stays unseen. The pixels are those that the whole image has there, to the bit. Baseline and progressive; gray,
// YCbCr, RGB, CMYK and YCCK (Adobe's are stored inverted) all become RGB. Accurate DCT, smooth chroma upsampling.
// kCorruptData: no JPEG, truncated, larger than the limits, or the crop is not inside. Messages do not say where: the
// caller knows the file.
core::Result<Image> decode_jpeg(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop = {},
                                const DecodeOptions& options = {});

enum class ChromaSubsampling { k444, k420 };

// Baseline JPEG of RGB pixels. quality in [1, 100]. The image must not be empty (kInvalidArgument).
std::vector<std::byte> encode_jpeg(const Image& image, int quality = 95,
                                   ChromaSubsampling subsampling = ChromaSubsampling::k420);

}  // namespace trainyard::data
