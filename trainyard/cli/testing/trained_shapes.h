// A suite that begins with a network which has learnt to tell the shapes of the embedded data set apart.
#pragma once

#include <cmath>
#include <cstdlib>
#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/datasets/shapes.h"

namespace trainyard::cli {

inline constexpr int64_t kValidationImages = 200;
inline constexpr int64_t kFewImages = 8;  // whose classes a young network finds almost equally probable

class TrainedShapes : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared = new core::TempDir;
    // The user's own machine limits would change what runs print.
    ::setenv("XDG_CACHE_HOME", shared->file("cache").c_str(), 1);
    data::ShapesOptions options;
    options.validation_count = kValidationImages;
    options.train_count = 800;
    data::write_shapes(options, data_dir());
    // 800 images teach it 10 to 25 % of the validation images, these 40 to 75 %.
    options.train_count = 4000;
    data::write_shapes(options, shared->file("more"));
    const CommandResult trained = run_command(
        {"train", "--model=resnet20", "--data_dir=" + shared->file("more"), "--device=cpu", "--batch_size=16",
         "--num_epochs=4", "--init_learning_rate=0.002", "--optimizer=tf_adam", "--learning_rate_schedule=cosine",
         "--eval_during_training_every_n_epochs=0", "--train_dir=" + float_run()});
    ASSERT_EQ(trained.code, kSuccess) << trained.err;
  }
  static void TearDownTestSuite() { delete shared; }

  static core::FileSystem& files() { return core::local_file_system(); }
  // Its first 800 training images, for what trains further, and the validation images.
  static std::string data_dir() { return shared->file("shapes"); }
  // The training's folder.
  static std::string float_run() { return shared->file("float"); }
  static CommandResult eval(const Arguments& more) {
    return run_command(with_flags({"eval", "--data_dir=" + data_dir(), "--device=cpu", "--batch_size=50"}, more));
  }
  // Returns the right ones of the validation images in the last evaluation that is shown; -1 where there is none.
  static int64_t right_in(const CommandResult& result) {
    std::smatch match;
    std::string text = result.out, found;
    while (std::regex_search(text, match, std::regex("Accuracy @ 1 = ([0-9.]+)"))) {
      found = match[1];
      text = match.suffix();
    }
    if (result.code == kSuccess && !found.empty()) return std::lround(std::stod(found) * kValidationImages);
    ADD_FAILURE() << result.out << result.err;
    return -1;
  }
  static void expect_refused(const Arguments& arguments, const std::vector<std::string>& parts) {
    const CommandResult result = run_command(arguments);
    EXPECT_NE(result.code, kSuccess) << result.out;
    for (const std::string& part : parts) EXPECT_THAT(result.err, ::testing::HasSubstr(part));
    EXPECT_THAT(result.err, ::testing::Not(::testing::HasSubstr("internal")));
  }

  static inline core::TempDir* shared = nullptr;
  const core::TempDir temp_;
};

}  // namespace trainyard::cli
