// Decodes JPEG files to RGB pixels in GPU memory. The GPU's JPEG engines decode a file when there are some and they
// support it; else the CPU decodes the Huffman codes and the GPU does the rest. Chroma is interpolated, as libjpeg's
// smooth upsampling does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trainyard/data/cuda/nvjpeg_library.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data::cuda {

// The nvJPEG handles that all decoders of a device share. Any thread may use them.
class NvjpegHandles {
 public:
  // Creates the handles on the current device. Throws kUnsupported.
  NvjpegHandles();
  ~NvjpegHandles();
  NvjpegHandles(const NvjpegHandles&) = delete;
  NvjpegHandles& operator=(const NvjpegHandles&) = delete;

  nvjpegHandle_t hybrid() const { return hybrid_; }
  nvjpegHandle_t engines() const { return engines_; }  // null: the device has none

 private:
  nvjpegHandle_t hybrid_ = nullptr, engines_ = nullptr;
};

// One thread at a time.
class NvjpegDecoder {
 public:
  explicit NvjpegDecoder(std::shared_ptr<const NvjpegHandles> handles);
  ~NvjpegDecoder();
  NvjpegDecoder(const NvjpegDecoder&) = delete;
  NvjpegDecoder& operator=(const NvjpegDecoder&) = delete;

  // Enqueues on `stream` the decoding into `pixels`, [size.height, size.width, 3] on the device. Returns why nvJPEG
  // does not decode the file, which must have this size, or an empty text. `file` must stay alive until the stream is
  // synchronized.
  std::string decode(std::span<const std::byte> file, ImageSize size, uint8_t* pixels, cudaStream_t stream);

 private:
  bool decode_by_engines(const unsigned char* bytes, size_t count, nvjpegImage_t& image, cudaStream_t stream);

  std::shared_ptr<const NvjpegHandles> handles_;
  nvjpegJpegState_t hybrid_ = nullptr, engines_ = nullptr;
  nvjpegJpegStream_t header_ = nullptr;  // for the engines
};

}  // namespace trainyard::data::cuda
