// A made set of images with boxed objects, in COCO's form: images of one to four shapes (datasets/shapes.h), and
// annotations in which each kind of shape has the category id of one of COCO's first twelve labels. For first runs and
// for tests of detectors.
//
//   data::write_boxed_shapes({.train_count = 2000}, "/tmp/boxed_shapes");
//   auto dataset = data::datasets().get("coco")({.directory = "/tmp/boxed_shapes"});
#pragma once

#include <cstdint>
#include <string>

#include "trainyard/core/files/file_system.h"

namespace trainyard::data {

struct BoxedShapesOptions {
  int64_t train_count = 2000, validation_count = 200;  // images
  int image_size = 300;                                // pixels a side
  uint64_t seed = 1;
  void validate() const;  // throws kInvalidArgument
};

// Writes annotations/instances_train2017.json, train2017/*.jpg and the same with val2017 to `directory`, which must not
// exist or must be empty. It appears atomically. Throws kInvalidArgument when something else exists there.
void write_boxed_shapes(const BoxedShapesOptions& options, const std::string& directory,
                        core::FileSystem& files = core::local_file_system());

}  // namespace trainyard::data
