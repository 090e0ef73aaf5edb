#include "trainyard/data/datasets/shapes.h"

#include <array>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/crc32c.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/pipeline/pipeline.h"

namespace trainyard::data::shapes_test {
namespace {

using core::Error;

ShapesOptions few() {
  return {.train_count = 60, .validation_count = 25};
}

TEST(Shapes, SameDrawingForASeedEverywhere) {
  const Image image = draw_shape(1, Subset::kTrain, 3, 32);
  EXPECT_EQ(image.pixels, draw_shape(1, Subset::kTrain, 3, 32).pixels);
  EXPECT_NE(image.pixels, draw_shape(2, Subset::kTrain, 3, 32).pixels);
  EXPECT_NE(image.pixels, draw_shape(1, Subset::kValidation, 3, 32).pixels);
  EXPECT_NE(image.pixels, draw_shape(1, Subset::kTrain, 3 + 12, 32).pixels);
  uint32_t crc = 0;
  for (int i = 0; i < 24; ++i) {
    const Image drawing = draw_shape(1, Subset::kTrain, i, 32);
    crc ^= core::crc32c(std::as_bytes(std::span(drawing.pixels))) * (2 * i + 1);
  }
  EXPECT_EQ(crc, 34503985u) << "changes when the drawings change: then note the new data set in docs/formats/shapes.md";
}

TEST(Shapes, WritesADataSetThatReadsBack) {
  core::TempDir temp;
  const std::string directory = temp.file("new/shapes");
  write_shapes(few(), directory);
  EXPECT_EQ(core::local_file_system().list(directory),
            (std::vector<std::string>{"train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"}));
  EXPECT_FALSE(core::local_file_system().exists(directory + ".unfinished"));
  for (Subset subset : {Subset::kTrain, Subset::kValidation}) {
    const auto dataset = datasets().get("shapes")({.directory = directory, .subset = subset});
    EXPECT_EQ(dataset->size(), subset == Subset::kTrain ? 60 : 25);
    EXPECT_EQ(dataset->label_count(), 12);
    std::map<int64_t, int> labels;
    for (int64_t i = 0; i < dataset->size(); ++i) ++labels[dataset->read(i).value().label];
    EXPECT_EQ(labels.size(), 12u);
    for (const auto& [label, count] : labels) EXPECT_GE(count, dataset->size() / 12);
  }
}

TEST(Shapes, SameFilesForASeed) {
  core::TempDir temp;
  write_shapes(few(), temp.file("a"));
  write_shapes(few(), temp.file("b"));
  core::FileSystem& files = core::local_file_system();
  for (const std::string& name : files.list(temp.file("a"))) {
    EXPECT_EQ(files.read_file(temp.file("a/" + name)), files.read_file(temp.file("b/" + name)));
  }
}

TEST(Shapes, RefusesToOverwrite) {
  core::TempDir temp;
  core::local_file_system().make_directories(temp.file("full"));
  core::local_file_system().write_file_atomically(temp.file("full/thesis.txt"), "years of work");
  core::local_file_system().write_file_atomically(temp.file("file"), "x");
  for (const char* name : {"full", "file"}) EXPECT_THROW(write_shapes(few(), temp.file(name)), Error);
  EXPECT_EQ(core::local_file_system().read_file(temp.file("full/thesis.txt")), "years of work");
  core::local_file_system().make_directories(temp.file("empty"));
  write_shapes(few(), temp.file("empty"));
  EXPECT_EQ(core::local_file_system().list(temp.file("empty")).size(), 3u);
}

// Every system call fails once, with each fault: the data set is there whole or not at all, and nothing is left over.
TEST(Shapes, AppearsWholeOrNotAtAll) {
  const ShapesOptions options{.train_count = 4, .validation_count = 2, .train_shards = 1};
  for (core::Fault fault :
       {core::Fault::kIoError, core::Fault::kNoSpace, core::Fault::kInterrupted, core::Fault::kShort}) {
    for (int n = 1;; ++n) {
      core::TempDir temp;
      core::FaultInjector faults;
      faults.fail_nth(n, fault);
      const auto files = core::make_file_system(faults);
      bool reported = false;
      try {
        write_shapes(options, temp.file("shapes"), *files);
      } catch (const Error&) {
        reported = true;
      }
      const bool harmless = fault == core::Fault::kInterrupted || fault == core::Fault::kShort;
      EXPECT_FALSE(reported && (harmless || !faults.reached())) << n;
      if (core::local_file_system().exists(temp.file("shapes"))) {
        EXPECT_EQ(core::local_file_system().list(temp.file("shapes")).size(), 2u);
        for (Subset subset : {Subset::kTrain, Subset::kValidation}) {
          const auto dataset = datasets().get("shapes")({.directory = temp.file("shapes"), .subset = subset});
          EXPECT_EQ(dataset->size(), subset == Subset::kTrain ? 4 : 2);
        }
      } else {
        EXPECT_TRUE(reported) << n;
      }
      if (!faults.reached()) break;
      ASSERT_LT(n, 1000);
    }
  }
}

TEST(Shapes, RefusesBadOptions) {
  core::TempDir temp;
  for (const ShapesOptions& options :
       {ShapesOptions{.train_count = 0}, ShapesOptions{.image_size = 8}, ShapesOptions{.train_shards = 0}}) {
    EXPECT_THROW(write_shapes(options, temp.file("x")), Error);
  }
  EXPECT_FALSE(core::local_file_system().exists(temp.file("x")));
}

TEST(Shapes, OptionsEndWhereTheyAreSaidTo) {
  const auto refusal = [](const ShapesOptions& options) { return core::message_of([&] { options.validate(); }); };
  EXPECT_EQ(refusal({.train_count = 1, .validation_count = 1, .image_size = 16, .train_shards = 1}), "no error");
  EXPECT_EQ(refusal({.image_size = 1024, .train_shards = 1000, .validation_shards = 1000}), "no error");
  EXPECT_EQ(refusal({.train_count = 0}), "shapes option train_count is out of range: expected at least 1 image, got 0");
  EXPECT_EQ(refusal({.validation_count = 0}),
            "shapes option validation_count is out of range: expected at least 1 image, got 0");
  EXPECT_EQ(refusal({.image_size = 15}),
            "shapes option image_size is out of range: expected 16 to 1024 pixels, got 15");
  EXPECT_EQ(refusal({.image_size = 1025}),
            "shapes option image_size is out of range: expected 16 to 1024 pixels, got 1025");
  EXPECT_EQ(refusal({.train_shards = 1001}),
            "shapes option train_shards is out of range: expected 1 to 1000, got 1001");
  EXPECT_EQ(refusal({.validation_shards = 0}),
            "shapes option validation_shards is out of range: expected 1 to 1000, got 0");
  EXPECT_EQ(refusal({.validation_shards = 1001}),
            "shapes option validation_shards is out of range: expected 1 to 1000, got 1001");
}

// Multinomial logistic regression by full-batch gradient descent with momentum.
class SoftmaxRegression {
 public:
  // images: [N, D] float; labels: [N] int64 in [0, classes).
  SoftmaxRegression(const at::Tensor& images, const at::Tensor& labels, int64_t classes, int steps)
      : weight_(at::zeros({images.size(1), classes})), bias_(at::zeros({classes})) {
    const at::Tensor target = at::one_hot(labels, classes).to(at::kFloat);
    at::Tensor weight_momentum = at::zeros_like(weight_);
    at::Tensor bias_momentum = at::zeros_like(bias_);
    for (int step = 0; step < steps; ++step) {
      const at::Tensor gradient = at::softmax(logits(images), 1).sub(target).div(static_cast<double>(images.size(0)));
      weight_momentum.mul_(0.9).add_(images.t().matmul(gradient));
      bias_momentum.mul_(0.9).add_(gradient.sum(0));
      weight_.sub_(weight_momentum, kLearningRate);
      bias_.sub_(bias_momentum, kLearningRate);
    }
  }

  double accuracy(const at::Tensor& images, const at::Tensor& labels) const {
    return logits(images).argmax(1).eq(labels).to(at::kDouble).mean().item<double>();
  }

 private:
  static constexpr double kLearningRate = 0.01;

  at::Tensor logits(const at::Tensor& images) const { return images.matmul(weight_).add(bias_); }

  at::Tensor weight_, bias_;
};

// What makes the set worth training on: no linear function of the pixels tells the shapes apart. The regression is
// given more than enough: it fits the training images far better than chance.
TEST(Shapes, LinearModelStaysUnderSeventyPercent) {
  core::apply_thread_options({.intra_op_threads = 1});
  const auto load = [](Subset subset, int64_t count) {
    at::Tensor images = at::empty({count, 3 * 32 * 32}, at::kFloat);
    at::Tensor labels = at::empty({count}, at::kLong);
    for (int64_t i = 0; i < count; ++i) {
      const Image image = draw_shape(1, subset, i, 32);
      float* out = images.mutable_data_ptr<float>() + i * 3072;
      for (size_t k = 0; k < image.pixels.size(); ++k) out[k] = static_cast<float>(image.pixels[k]) / 127.5F - 1;
      labels.mutable_data_ptr<int64_t>()[i] = shape_label(i);
    }
    return std::pair(images, labels);
  };
  const auto [train_images, train_labels] = load(Subset::kTrain, 3000);
  const auto [test_images, test_labels] = load(Subset::kValidation, 1000);
  const SoftmaxRegression model(train_images, train_labels, 12, 120);
  const double train_accuracy = model.accuracy(train_images, train_labels);
  const double accuracy = model.accuracy(test_images, test_labels);
  RecordProperty("train_accuracy", std::to_string(train_accuracy));
  RecordProperty("validation_accuracy", std::to_string(accuracy));
  EXPECT_GT(train_accuracy, 0.25);
  EXPECT_LT(accuracy, 0.7);
}

// Writing may fail as late as at the end of a file.
TEST(Shapes, AShardThatCannotBeClosedIsAnError) {
  const ShapesOptions options{.train_count = 4, .validation_count = 2, .train_shards = 1};
  int shards = 0;
  for (int n = 1;; ++n) {
    const core::TempDir temp;
    core::FaultInjector faults;
    faults.fail_nth(n, core::Fault::kIoError);
    const auto files = core::make_file_system(faults);
    const auto error = core::error_of([&] { write_shapes(options, temp.file("shapes"), *files); });
    if (!faults.reached()) break;
    ASSERT_LT(n, 1000);
    const std::vector<std::string> log = faults.log();
    size_t call = static_cast<size_t>(n) - 1;
    if (log[call] != "close") continue;
    while (call > 0 && !log[call].starts_with("open")) --call;  // of the file that is closed
    if (log[call].find("-of-") == std::string::npos) continue;
    EXPECT_TRUE(error.has_value()) << log[call];
    ++shards;
  }
  EXPECT_EQ(shards, 2);
}

// The first colour of a background of equal edges is that of its corner.
TEST(Shapes, WhereNoColourContrastsTheyAreBlackOnLightAndWhiteOnDark) {
  const ShapesDifficulty difficulty{.min_contrast = 500, .max_distractors = 0, .noise = 0};
  constexpr int kSide = 64;
  using Pixel = std::array<int, 3>;
  int light = 0, dark = 0;
  for (int64_t i = 0; i < 200; ++i) {
    const Image image = draw_shape(1, Subset::kTrain, i, kSide, difficulty);
    const auto at = [&](int y, int x) -> Pixel {
      const uint8_t* const rgb = image.pixels.data() + 3 * (y * kSide + x);
      return {rgb[0], rgb[1], rgb[2]};
    };
    const Pixel corner = at(0, 0);
    bool flat = true;
    for (int k = 0; k < kSide; ++k) flat = flat && at(0, k) == corner && at(k, 0) == corner;
    const int sum = corner[0] + corner[1] + corner[2];
    if (!flat || std::abs(sum - 382) < 3) continue;
    const int expected = sum < 382 ? 255 : 0;
    int found = 0;
    for (int y = 0; y < kSide; ++y) {
      for (int x = 0; x < kSide; ++x) found += at(y, x) == Pixel{expected, expected, expected} ? 1 : 0;
    }
    EXPECT_GT(found, 0) << i;
    ++(expected == 0 ? light : dark);
  }
  EXPECT_GT(light, 3);
  EXPECT_GT(dark, 3);
}

}  // namespace
}  // namespace trainyard::data::shapes_test
