// JPEGs whose EXIF data say how the camera was held.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace trainyard::data {

// Returns a copy of a JPEG file with a segment of EXIF data that says `orientation`.
inline std::vector<std::byte> with_exif(const std::vector<std::byte>& jpeg, int orientation) {
  // APP1, its length, "Exif", a little-endian TIFF header, and a directory of one entry: Orientation, a short.
  const std::array<int, 36> segment = {0xff, 0xe1, 0, 34, 'E',         'x', 'i', 'f', 0,    0, 'I', 'I',
                                       42,   0,    8, 0,  0,           0,   1,   0,   0x12, 1, 3,   0,
                                       1,    0,    0, 0,  orientation, 0,   0,   0,   0,    0, 0,   0};
  std::vector<std::byte> file(jpeg.begin(), jpeg.begin() + 2);
  for (const int byte : segment) file.push_back(static_cast<std::byte>(byte));
  file.insert(file.end(), jpeg.begin() + 2, jpeg.end());
  return file;
}

}  // namespace trainyard::data
