#include "trainyard/frontends/model/quantize_trained.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/sources/tensor_source.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/frontends/input/image_source.h"
#include "trainyard/nn/testing/quantizable_networks.h"
#include "trainyard/train/model/model.h"

namespace trainyard::frontends::quantize_trained_test {
namespace {

using ::testing::StartsWith;

InputOptions input_of(const std::string& directory) {
  InputOptions options;
  options.data_dir = directory;
  options.threads = 1;
  options.seed = 5;
  return options;
}

// The sum of each image, ascending.
std::vector<double> sums_of(const std::vector<at::Tensor>& batches) {
  std::vector<double> sums;
  for (const at::Tensor& images : batches) {
    for (int64_t i = 0; i < images.size(0); ++i) sums.push_back(images[i].sum().item<double>());
  }
  std::sort(sums.begin(), sums.end());
  return sums;
}

// 40 images in batches of 32, as an evaluation makes them, each once, whatever a training would do with them.
TEST(CalibrationSource, HasEachTrainingImageOnceAsEvaluationsMakeIt) {
  const core::TempDir temp;
  data::write_shapes({.train_count = 40, .validation_count = 3}, temp.file("shapes"));
  InputSettings settings = settle_input(input_of(temp.file("shapes")), "shapes", 32, 1);
  settings.repeated_augmentation = 3;
  settings.mix = {.mixup_alpha = 0.5};
  const auto source = make_calibration_source(settings);
  EXPECT_EQ(source->batch_size(), 32);
  const at::Tensor first = source->next().at(0).images().clone(), second = source->next().at(0).images().clone();
  EXPECT_EQ(first.sizes().vec(), (std::vector<int64_t>{32, 3, 32, 32}));
  EXPECT_EQ(second.sizes().vec(), (std::vector<int64_t>{8, 3, 32, 32}));

  const auto evaluation = make_image_source(settings, {},
                                            {.dataset = open_dataset(settings, data::Subset::kTrain),
                                             .num_classes = 12,
                                             .batch_size = 40,
                                             .training = false,
                                             .repeat = false});
  const at::Tensor in_order = evaluation->next().at(0).images().clone();
  ASSERT_EQ(in_order.size(0), 40);
  EXPECT_EQ(sums_of({first, second}), sums_of({in_order}));
  EXPECT_FALSE(first.equal(in_order.slice(0, 0, 32))) << "in an order that is drawn";
  EXPECT_TRUE(first.equal(make_calibration_source(settings)->next().at(0).images())) << "by the seed";
  settings.seed = 6;
  EXPECT_FALSE(first.equal(make_calibration_source(settings)->next().at(0).images()));
}

TEST(CalibrationSource, MayHaveSeveralLabelsAnImage) {
  const core::TempDir temp;
  core::FileSystem& files = core::local_file_system();
  files.make_directories(temp.file("photos"));
  for (const char* const name : {"photos/a.png", "photos/b.png"}) {
    const auto png = data::encode_png(data::noisy_image(8, 8));
    files.write_file_atomically(temp.file(name), {reinterpret_cast<const char*>(png.data()), png.size()});
  }
  files.write_file_atomically(temp.file("labels.csv"), "file,labels\na.png,cat;dog\nb.png,dog;cow\n");
  InputOptions options = input_of(temp.file("photos"));
  options.labels_csv = temp.file("labels.csv");
  options.split_class_folders = false;
  const auto source = make_calibration_source(settle_input(options, "imagenet", 16, 1));
  const std::vector<data::Batch> batches = source->next();
  EXPECT_EQ(batches.at(0).images().sizes().vec(), (std::vector<int64_t>{2, 3, 16, 16}));
  EXPECT_EQ(batches.at(0).labels().sizes().vec(), (std::vector<int64_t>{2, 3})) << "cat, cow and dog";
  EXPECT_EQ(batches.at(0).labels().sum().item<double>(), 4);
}

TEST(CalibrationSource, NeedsTrainingImages) {
  EXPECT_EQ(core::message_of([] { static_cast<void>(make_calibration_source({.dataset = "shapes"})); }),
            "scales of 8-bit integers follow from images, and there are none: expected some hundred images of the "
            "model's training; pass --data_dir");
  const core::TempDir temp;  // without any file
  const InputSettings settings = settle_input(input_of(temp.path()), "imagenet", 32, 1);
  EXPECT_THAT(core::message_of([&] { static_cast<void>(make_calibration_source(settings)); }),
              StartsWith("there are no training images to find scales of 8 bits with: "));
}

TEST(QuantizeTrained, MakesTheModelOneOf8Bits) {
  const core::TempDir temp;
  nn::GraphBuilder b({.image = {3, 6, 8}, .name = "small"});
  const auto x =
      b.convolution("conv", b.input(), {.out_channels = 16, .kernel = 3, .padding = nn::Padding::all(1), .bias = true});
  const nn::Graph graph =
      b.build(b.linear("fc", b.global_average_pool("pool", b.activation("relu", x)), {.out_features = 5}));
  const nn::ParameterSet set = nn::quantization_testing::values_for(graph);
  train::save_model(temp.file("float"), {.name = "small", .transform = "", .graph = graph}, set);
  const auto source = [] {
    return data::TensorSource(nn::quantization_testing::normal({24, 3, 6, 8}, "images"), at::zeros({24}, at::kLong),
                              {.batch_size = 8, .repeat = false});
  };

  TrainedModel trained = load_trained_model({.path = temp.file("float")});
  data::TensorSource images = source();
  const nn::QuantizationReport report = quantize_trained(trained, images, {.batches = 2});
  EXPECT_EQ(report.calibration_images + report.held_out_images, 16);
  EXPECT_FALSE(report.layers_in_8_bits.empty());
  EXPECT_FALSE(report.trials.empty());
  ASSERT_NE(trained.quantization, nullptr);
  EXPECT_EQ(trained.executor->context().quantization, trained.quantization);
  EXPECT_EQ(trained.executor->context().parameters, trained.parameters.get());

  data::TensorSource again = source();
  const train::QuantizedModelFile expected =
      train::quantize_model({.name = "small", .transform = "", .graph = graph}, set, again, {.batches = 2});
  const train::Model model(expected.description, expected.parameters->clone());
  const at::Tensor others = nn::quantization_testing::normal({4, 3, 6, 8}, "others");
  const at::Tensor logits = trained.executor->forward(others, {}), same = model.logits(others);
  EXPECT_LT(logits.sub(same).abs().max().item<double>(), 1e-5 * same.abs().max().item<double>());
}

TEST(QuantizeTrained, DetectorsAreRefused) {
  TrainedModel trained;
  trained.checkpoint.path = "w.safetensors";
  trained.identity = {.model = "ssd300", .dataset = "coco", .num_classes = 81};
  const std::string refusal =
      "models that detect objects are not computed in 8-bit integers: w.safetensors: expected a classifier of images, "
      "got ssd300; use --precision=bfloat16";
  EXPECT_EQ(core::message_of([&] { require_classifier(trained); }, core::ErrorCode::kUnsupported), refusal);
  data::TensorSource images(at::zeros({2, 3, 8, 8}), at::zeros({2}, at::kLong));
  EXPECT_EQ(core::message_of([&] { quantize_trained(trained, images, {}); }, core::ErrorCode::kUnsupported), refusal);
  trained.identity.dataset = "imagenet";
  EXPECT_NO_THROW(require_classifier(trained));
}

}  // namespace
}  // namespace trainyard::frontends::quantize_trained_test
