// The embedded data set `shapes`: drawings of twelve kinds of shapes at random places, sizes, angles and colours, over
// random backgrounds with small distractors and noise (docs/formats/shapes.md). It is for first runs and for tests:
// there is nothing to download, a small network learns it in minutes, and a linear model cannot.
//
//   data::write_shapes({.train_count = 8000}, "/tmp/shapes");
//   auto dataset = data::datasets().get("shapes")({.directory = "/tmp/shapes"});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/image/image.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

struct ShapesOptions {
  int64_t train_count = 8000, validation_count = 2000;  // images
  int image_size = 32;                                  // pixels a side
  int train_shards = 2, validation_shards = 1;
  uint64_t seed = 1;
  void validate() const;  // throws kInvalidArgument
};

// How hard the images are. Sizes are parts of the image's side.
struct ShapesDifficulty {
  float min_radius = 0.25F, max_radius = 0.42F;
  float max_tilt = 0.35F;      // tangent of half the angle of rotation: 0.35 is 39 degrees
  float min_contrast = 90.0F;  // least distance of the shape's colour from the background's, of 255
  int max_distractors = 2;
  float noise = 8.0F;  // standard deviation, of 255
};

// Returns the names of the labels 0 to 11.
const std::vector<std::string>& shape_names();

// Draws image `index` of a subset: a pure function of its arguments, the same on every machine.
Image draw_shape(uint64_t seed, Subset subset, int64_t index, int size, const ShapesDifficulty& difficulty = {});
// Returns the label of an image: index modulo the number of shapes.
[[nodiscard]] int64_t shape_label(int64_t index);

// An image of several shapes.
struct BoxedShapes {
  Image image{};
  std::vector<Box> boxes{};       // the shapes' extents, parts of the image
  std::vector<int64_t> shapes{};  // of each box, a place in shape_names()
};
// Draws image `index` of a set of images with one to `most` shapes that do not touch each other: a pure function of its
// arguments, the same on every machine. Radii are 0.08 to 0.24 of the side.
BoxedShapes draw_boxed_shapes(uint64_t seed, Subset subset, int64_t index, int size, int most = 4);

// Writes the data set to `directory`, which must not exist or must be empty. It appears atomically. Throws
// kInvalidArgument when something else exists there.
void write_shapes(const ShapesOptions& options, const std::string& directory,
                  core::FileSystem& files = core::local_file_system());

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
