// Small COCO data sets in a folder. That of write_small_coco() has three training images, of which the second has no
// boxes, and one for validation. For tests only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/detection/boxed_shapes.h"
#include "trainyard/data/detection/coco_annotations.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data {

inline std::string jpeg_text(const Image& image) {
  const std::vector<std::byte> bytes = encode_jpeg(image, 90);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline const std::vector<CocoCategory>& small_categories() {
  static const std::vector<CocoCategory> categories = {
      {18, "dog", "animal"}, {1, "person", "person"}, {90, "toothbrush", "indoor"}};
  return categories;
}

// Boxes have numbers that single precision does not hold.
inline CocoAnnotations small_training_annotations() {
  return {.categories = small_categories(),
          .images = {{70, "000000000070.jpg", 200, 100}, {71, "empty.jpg", 120, 80}, {5, "000000000005.jpg", 90, 160}},
          .boxes = {{900, 5, 18, 10.1, 20.2, 30.3, 40.4, 1000.123456789, false},
                    {12, 70, 1, 0, 0, 200, 100, 20000, true},
                    {901, 70, 90, 150.5, 20.25, 49.5, 30.5, 7.1, false},
                    {902, 70, 1, 20, 30, 0, 10, 0, false},      // no area
                    {903, 5, 1, 80, 20, 20, 10, 200, false}}};  // leaves the image
}

inline CocoAnnotations small_validation_annotations() {
  return {.categories = small_categories(),
          .images = {{8, "000000000008.jpg", 64, 48}},
          .boxes = {{1, 8, 1, 4.5, 6.5, 20, 30, 321.5, false}}};
}

inline void write_coco_subset(const std::string& directory, const std::string& subset, const CocoAnnotations& content) {
  core::FileSystem& files = core::local_file_system();
  files.make_directories(core::join_path(directory, "annotations"));
  files.make_directories(core::join_path(directory, subset));
  files.write_file_atomically(core::join_path(directory, fmt::format("annotations/instances_{}.json", subset)),
                              coco_annotations_json(content));
  for (const CocoImage& image : content.images) {
    files.write_file_atomically(core::join_path(core::join_path(directory, subset), image.file_name),
                                jpeg_text(noisy_image(image.height, image.width, static_cast<uint64_t>(image.id))));
  }
}

inline void write_small_coco(const std::string& directory) {
  write_coco_subset(directory, "train2017", small_training_annotations());
  write_coco_subset(directory, "val2017", small_validation_annotations());
}

// Writes boxed shapes, of which the images for validation are those for training.
inline void write_boxes_to_learn(const std::string& directory, int64_t images, int image_size) {
  write_boxed_shapes({.train_count = images, .validation_count = 1, .image_size = image_size}, directory);
  std::filesystem::remove_all(core::join_path(directory, "val2017"));
  std::filesystem::copy(core::join_path(directory, "train2017"), core::join_path(directory, "val2017"));
  const std::string annotations = core::join_path(directory, "annotations");
  std::filesystem::copy_file(core::join_path(annotations, "instances_train2017.json"),
                             core::join_path(annotations, "instances_val2017.json"),
                             std::filesystem::copy_options::overwrite_existing);
}

}  // namespace trainyard::data
