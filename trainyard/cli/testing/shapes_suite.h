// A suite of whole runs on the embedded data set, which is written once.
#pragma once

#include <cstdlib>

#include <gtest/gtest.h>

#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/datasets/shapes.h"

namespace trainyard::cli {

class ShapesSuite : public ::testing::Test {
 protected:
  // 120 images for training, 36 for validation, in shared->file("shapes").
  static void SetUpTestSuite() {
    shared = new core::TempDir;
    // The user's own machine limits would change what runs print.
    ::setenv("XDG_CACHE_HOME", shared->file("cache").c_str(), 1);
    data::ShapesOptions options;
    options.train_count = 120;
    options.validation_count = 36;
    data::write_shapes(options, shared->file("shapes"));
  }
  static void TearDownTestSuite() { delete shared; }

  static inline core::TempDir* shared = nullptr;
};

}  // namespace trainyard::cli
