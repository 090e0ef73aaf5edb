// JPEGs that encode_jpeg does not write, straight from libjpeg. For tests only.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <vector>

#include <jpeglib.h>

namespace trainyard::data {

// `pixels`: rows of `height` x `width` pixels in `space`. `configure` changes what jpeg_set_defaults gave.
inline std::vector<std::byte> encode_with(std::span<const uint8_t> pixels, int height, int width, J_COLOR_SPACE space,
                                          const std::function<void(jpeg_compress_struct&)>& configure) {
  jpeg_compress_struct codec{};
  jpeg_error_mgr errors{};
  codec.err = jpeg_std_error(&errors);
  jpeg_create_compress(&codec);
  unsigned char* output = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&codec, &output, &size);
  codec.image_height = height;
  codec.image_width = width;
  codec.input_components = static_cast<int>(pixels.size() / (static_cast<size_t>(height) * width));
  codec.in_color_space = space;
  jpeg_set_defaults(&codec);
  configure(codec);
  jpeg_start_compress(&codec, TRUE);
  for (int y = 0; y < height; ++y) {
    JSAMPROW row = const_cast<uint8_t*>(pixels.data() + static_cast<size_t>(y) * width * codec.input_components);
    jpeg_write_scanlines(&codec, &row, 1);
  }
  jpeg_finish_compress(&codec);
  jpeg_destroy_compress(&codec);
  const auto* begin = reinterpret_cast<const std::byte*>(output);
  std::vector<std::byte> file(begin, begin + size);
  std::free(output);
  return file;
}

}  // namespace trainyard::data
