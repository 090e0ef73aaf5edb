// Writes folders of small images, one a class, for the examples that read such: flat colours with noise.
// usage: example_make_images FOLDER IMAGES_A_CLASS CLASS...
#include <filesystem>
#include <fstream>
#include <string>

#include "trainyard/trainyard.h"

using namespace trainyard;

int main(int count, char** arguments) {
  for (int kind = 3; kind < count; ++kind) {
    const std::filesystem::path folder = std::filesystem::path(arguments[1]) / arguments[kind];
    std::filesystem::create_directories(folder);
    core::RandomStream random(7, arguments[kind]);
    const uint64_t colours[] = {20 + random.below(200), 20 + random.below(200), 20 + random.below(200)};
    for (int i = 0; i < std::stoi(arguments[2]); ++i) {
      data::Image image{.height = 40, .width = 48};
      for (int p = 0; p < 40 * 48; ++p) {
        for (const uint64_t colour : colours) image.pixels.push_back(static_cast<uint8_t>(colour + random.below(36)));
      }
      const auto bytes = data::encode_png(image);
      std::ofstream(folder / (std::to_string(i) + ".png"), std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
  }
}
