// Logits of checkpoints that TensorFlow, or this test in its place, has written.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/testing/worst.h"
#include "trainyard/formats/tensors/npy.h"
#include "trainyard/formats/testing/tensorflow_checkpoint_writer.h"
#include "trainyard/frontends/model/trained_model.h"

namespace trainyard::frontends::tensorflow_run_test {
namespace {

std::vector<float> logits_of(const TrainedModel& trained, const std::vector<float>& images,
                             const std::vector<int64_t>& shape) {
  const at::NoGradGuard no_grad;
  std::vector<float> copy = images;
  const at::Tensor logits = trained.executor->forward(at::from_blob(copy.data(), shape), {}).contiguous();
  return {logits.const_data_ptr<float>(), logits.const_data_ptr<float>() + logits.numel()};
}

void expect_close(const std::vector<float>& actual, const std::vector<double>& expected, const std::string& name) {
  ASSERT_EQ(actual.size(), expected.size()) << name;
  double largest = 0, difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    core::take_worst(difference, std::abs(actual[i] - expected[i]));
  }
  ::testing::Test::RecordProperty(name, fmt::format("{}", difference / largest));
  EXPECT_LE(difference, 1e-5 * largest) << name;
  EXPECT_GT(largest, 0.1) << name;
}

formats::NpyArray read(const std::string& path) {
  return formats::read_npy(*core::local_file_system().open_read(path));
}

std::vector<float> floats(const formats::NpyArray& array) {
  const auto values = array.values<float>();
  return {values.begin(), values.end()};
}

// The network `trivial` by its definition, in double precision.
void expect_definition() {
  const core::TempDir temp;
  std::map<std::string, formats::TestVariable> variables;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) -> const std::vector<float>& {
    formats::TestVariable& variable = variables["v/cg/" + name];
    variable.shape = shape;
    const int64_t count = shape.size() == 1 ? shape[0] : shape[0] * shape[1];
    for (int64_t i = 0; i < count; ++i) variable.values.push_back(static_cast<float>(i * 7 % 13 - 5) / 64);
    return variable.values;
  };
  std::vector<float> images;
  for (int i = 0; i < 3072; ++i) images.push_back(static_cast<float>(i * 5 % 17 - 8) / 8);
  std::vector<double> x(images.begin(), images.end());
  int number = 0;
  for (const int64_t units : {1, 4096, 10}) {
    const std::string layer = "affine" + std::to_string(number++);
    const auto in = static_cast<int64_t>(x.size());
    const std::vector<float> weights = add(layer + "/weights", {in, units}), biases = add(layer + "/biases", {units});
    std::vector<double> y(biases.begin(), biases.end());
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t o = 0; o < units; ++o)
        y[static_cast<size_t>(o)] += x[static_cast<size_t>(i)] * weights[static_cast<size_t>(i * units + o)];
    }
    if (units != 10) std::transform(y.begin(), y.end(), y.begin(), [](double value) { return std::max(value, 0.0); });
    x = y;
  }
  formats::write_tensorflow_checkpoint(temp.file("run/model.ckpt-110"), variables, 110);
  const TrainedModel trained =
      load_trained_model({.path = temp.file("run"), .model = "trivial", .dataset = "cifar10", .num_classes = 10});
  EXPECT_EQ(trained.checkpoint.global_step, 110);
  EXPECT_EQ(trained.checkpoint.path, temp.file("run/model.ckpt-110"));
  EXPECT_FALSE(trained.input.training) << "images are not distorted, though nothing is known of them";
  expect_close(logits_of(trained, images, {1, 3, 32, 32}), x, "trivial");
}

// tests/tensorflow_checkpoints_test.py, which sets the variable, lets TensorFlow write them.
TEST(TensorFlowRun, HasItsLogits) {
  const char* const folder = std::getenv("TRAINYARD_TENSORFLOW_RUN");
  if (folder == nullptr) return expect_definition();
  std::istringstream networks(core::local_file_system().read_file(core::join_path(folder, "networks.txt")));
  int count = 0;
  std::string name, dataset;
  for (int64_t side = 0, classes = 0; networks >> name >> dataset >> side >> classes; ++count) {
    const std::string run = core::join_path(folder, name);
    const TrainedModel trained = load_trained_model(
        {.path = run, .model = name, .dataset = dataset, .num_classes = classes, .image_size = side});
    EXPECT_EQ(trained.checkpoint.global_step, 110);
    const formats::NpyArray images = read(run + "/images.npy");
    const std::vector<float> expected = floats(read(run + "/logits.npy"));
    expect_close(logits_of(trained, floats(images), images.shape), {expected.begin(), expected.end()}, name);
  }
  EXPECT_GE(count, 3);
}

}  // namespace
}  // namespace trainyard::frontends::tensorflow_run_test
