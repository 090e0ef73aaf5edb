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

// Returns the size that the header says, decoding nothing, or kCorruptData when there is none.
core::Result<ImageSize> read_jpeg_size(std::span<const std::byte> bytes, bool exif_orientation = false);

// Returns why decoders may differ about this file, or an empty text. All of them understand alike a whole file of 8
// bits, in gray or YCbCr, Huffman coded; with `exif_orientation`, one that is to be turned is none of them.
std::string unusual_jpeg(std::span<const std::byte> bytes, bool exif_orientation = false);

// Decodes the image, or only `crop` of it. Rows above it are skipped and nothing is read behind its last row, so damage
// there stays unseen. The pixels are those that the whole image has there, to the bit. Baseline and progressive files
// in gray, YCbCr, RGB, CMYK and YCCK (Adobe's are stored inverted) all become RGB, by the accurate DCT with smooth
// chroma upsampling. Returns kCorruptData where the file is no JPEG or is truncated, is larger than the limits, or the
// crop is not inside. Messages do not say where: the caller knows the file.
core::Result<Image> decode_jpeg(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop = {},
                                const DecodeOptions& options = {});

enum class ChromaSubsampling { k444, k420 };

// Encodes RGB pixels as a baseline JPEG. `quality` is in [1, 100]. Throws kInvalidArgument for an empty image.
std::vector<std::byte> encode_jpeg(const Image& image, int quality = 95,
                                   ChromaSubsampling subsampling = ChromaSubsampling::k420);

}  // namespace trainyard::data
