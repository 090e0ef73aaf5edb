// A data set that is easy to learn: class folders of flat images.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::train {

// Writes two classes of flat images, bright ones and dark ones, and returns their folder.
inline std::string write_light_folder(const core::TempDir& temp) {
  for (const char* kind : {"bright", "dark"}) {
    const std::string folder = temp.file(std::string("data/") + kind);
    core::local_file_system().make_directories(folder);
    for (int i = 0; i < 8; ++i) {
      const uint8_t value = static_cast<uint8_t>((kind[0] == 'b' ? 180 : 30) + 5 * i);
      const auto bytes = data::encode_png(data::flat_image(16, 16, value));
      std::ofstream(folder + "/" + std::to_string(i) + ".png", std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    }
  }
  return temp.file("data");
}

}  // namespace trainyard::train
