#include "trainyard/data/detection/boxed_shapes.h"

#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/datasets/shapes_files.h"
#include "trainyard/data/detection/coco_annotations.h"
#include "trainyard/data/detection/coco_labels.h"

namespace trainyard::data {
namespace {

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
    files.write_file_atomically(core::join_path(folder, image.file_name), encode_shapes(drawn.image));
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
  require_shapes_options("boxed shapes", train_count, validation_count, image_size);
}

void write_boxed_shapes(const BoxedShapesOptions& options, const std::string& directory, core::FileSystem& files) {
  options.validate();
  write_both_subsets(directory, files, [&](Subset subset, const std::string& unfinished) {
    write_subset(options, subset, unfinished, files);
  });
}

}  // namespace trainyard::data
