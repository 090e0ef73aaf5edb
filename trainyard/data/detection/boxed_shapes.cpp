#include "trainyard/data/detection/boxed_shapes.h"

#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/data/base/new_directory.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/detection/coco_annotations.h"
#include "trainyard/data/detection/coco_labels.h"

namespace trainyard::data {
namespace {

constexpr int kBoxedJpegQuality = 95;

void write_subset(const BoxedShapesOptions& options, Subset subset, const std::string& directory,
                  core::FileSystem& files) {
  const bool train = subset == Subset::kTrain;
  const std::string name = train ? "train2017" : "val2017";
  const std::string folder = core::join_path(directory, name);
  files.make_directories(folder);
  CocoAnnotations annotations;
  for (size_t shape = 0; shape < shape_names().size(); ++shape) {
    annotations.categories.push_back({.id = coco_category_of_label(static_cast<int64_t>(shape) + 1),
                                      .name = shape_names()[shape],
                                      .supercategory = "shape"});
  }
  const int64_t count = train ? options.train_count : options.validation_count;
  const double side = options.image_size;
  for (int64_t index = 0; index < count; ++index) {
    const BoxedShapes drawn = draw_boxed_shapes(options.seed, subset, index, options.image_size);
    const CocoImage image{.id = index + 1,
                          .file_name = fmt::format("{:012}.jpg", index + 1),
                          .width = options.image_size,
                          .height = options.image_size};
    const std::vector<std::byte> jpeg = encode_jpeg(drawn.image, kBoxedJpegQuality, ChromaSubsampling::k444);
    files.write_file_atomically(core::join_path(folder, image.file_name),
                                {reinterpret_cast<const char*>(jpeg.data()), jpeg.size()});
    for (size_t i = 0; i < drawn.boxes.size(); ++i) {
      const Box& box = drawn.boxes[i];
      // Whole pixels, which stay inside of the image.
      const double width = std::round((double{box.xmax} - box.xmin) * side);
      const double height = std::round((double{box.ymax} - box.ymin) * side);
      annotations.boxes.push_back({.id = std::ssize(annotations.boxes) + 1,
                                   .image_id = image.id,
                                   .category_id = coco_category_of_label(drawn.shapes[i] + 1),
                                   .x = std::round(box.xmin * side),
                                   .y = std::round(box.ymin * side),
                                   .width = width,
                                   .height = height,
                                   .area = width * height});
    }
    annotations.images.push_back(image);
  }
  files.make_directories(core::join_path(directory, "annotations"));
  files.write_file_atomically(core::join_path(directory, fmt::format("annotations/instances_{}.json", name)),
                              coco_annotations_json(annotations));
}

}  // namespace

void BoxedShapesOptions::validate() const {
  const auto require = [](bool holds, std::string_view name, std::string_view expected, int64_t actual) {
    if (holds) return;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = fmt::format("boxed shapes option {} is out of range", name),
                       .expected = std::string(expected),
                       .actual = fmt::format("{}", actual)});
  };
  require(train_count > 0, "train_count", "at least 1 image", train_count);
  require(validation_count > 0, "validation_count", "at least 1 image", validation_count);
  require(image_size >= 16 && image_size <= 1024, "image_size", "16 to 1024 pixels", image_size);
}

void write_boxed_shapes(const BoxedShapesOptions& options, const std::string& directory, core::FileSystem& files) {
  options.validate();
  make_new_directory(directory, files, [&](const std::string& unfinished) {
    write_subset(options, Subset::kTrain, unfinished, files);
    write_subset(options, Subset::kValidation, unfinished, files);
  });
}

}  // namespace trainyard::data
