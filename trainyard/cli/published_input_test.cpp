// Weights of torchvision and timm are seen as these see images: against torchvision's own transforms, and its
// probabilities of pictures.
#include "trainyard/frontends/model/published_input.h"

#include <array>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/predict.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/testing/test_data.h"
#include "trainyard/frontends/model/model_metadata.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/models/testing/golden_network.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::cli::published_input_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::ifstream golden_file(const std::string& name) {
  return std::ifstream(std::string(TRAINYARD_SOURCE_DIR "/trainyard/frontends/testdata/") + name);
}

// Writes weights of the formula of tools/golden/drawn.py, the last layer's times `factor`, without a word of the model.
void write_drawn_weights(const std::string& path, const nn::Graph& graph, double factor) {
  nn::ParameterSet set;
  const auto executor = nn::make_executor("reference", graph, {.mode = nn::Mode::kInference, .parameters = &set});
  set.allocate();
  const auto fill = [&](const at::Tensor& tensor, const std::string& name, double times) {
    const at::Tensor numbers = at::empty(tensor.sizes(), at::kDouble);
    models::set_start(numbers, name);
    tensor.copy_(numbers * times);
  };
  const int last = static_cast<int>(set.size()) - 2;
  for (int i = 0; i < static_cast<int>(set.size()); ++i) {
    fill(set.value({i}), set.segment({i}).spec.name, i >= last ? factor : 1);
  }
  for (int b = 0; b < static_cast<int>(set.buffer_count()); ++b) fill(set.buffer(b), set.buffer_spec(b).name, 1);
  set.values_changed();
  train::save_weights(path, set);
}

bool in_zoo(const std::string& network) {
  try {
    static_cast<void>(models::find_model("torchvision/" + network, "imagenet"));
    return true;
  } catch (const core::Error&) {
    return false;
  }
}

// Every file of weights that torchvision publishes for a model of the zoo.
TEST(PublishedInput, IsThatOfTorchvisionsOwnTransforms) {
  std::ifstream lines = golden_file("torchvision_inputs.txt");
  std::string network, set, file, method;
  int64_t crop = 0, resize = 0;
  std::vector<double> numbers(6);
  int compared = 0;
  while (lines >> network >> set >> file >> crop >> resize >> method) {
    for (double& number : numbers) lines >> number;
    if (set == "IMAGENET1K_FEATURES" || !in_zoo(network)) continue;  // the first is of a detector, without a head
    // The way of torchvision's models with transform_input, which these files come with.
    if (network == "googlenet" || network == "inception_v3") numbers = {0.5, 0.5, 0.5, 0.5, 0.5, 0.5};
    const auto published =
        frontends::torchvision_input("weights/" + file, {.name = network, .equals = "torchvision " + network});
    ASSERT_TRUE(published) << network;
    const data::TransformOptions& input = published->input;
    EXPECT_EQ(input.height, crop) << network << " " << set;
    EXPECT_EQ(input.width, crop) << network;
    EXPECT_EQ(input.eval_resize_size, resize) << network << " " << set;
    EXPECT_EQ(input.resize_method, method) << network << " " << set;
    EXPECT_TRUE(input.resize_antialias && input.resize_half_pixel_centers);
    EXPECT_FALSE(input.scaled_decode);
    for (size_t c = 0; c < 3; ++c) {
      EXPECT_NEAR(input.normalization.scale[c], 1 / (255 * numbers[3 + c]), 1e-8) << network;
      EXPECT_NEAR(input.normalization.shift[c], -numbers[c] / numbers[3 + c], 1e-5) << network;
    }
    EXPECT_THAT(published->choice, HasSubstr(network));
    ++compared;
    if (set != "IMAGENET1K_V1") continue;
    const auto unnamed =
        frontends::torchvision_input("mine.pth", {.name = network, .equals = "torchvision " + network});
    EXPECT_TRUE(frontends::evaluation_differences(input, unnamed->input).empty()) << network;
  }
  EXPECT_GT(compared, 50);
  EXPECT_FALSE(frontends::torchvision_input("mine.pth", {.name = "resnet50", .equals = "tf_cnn_benchmarks resnet50"}));
  EXPECT_TRUE(frontends::torchvision_input("mine.pth", models::find_model("resnet50_v1.5", "imagenet")));
}

// torchvision's detection/ssd.py: the whole image in its square, image_mean of 0.48235, 0.45882, 0.40784 and image_std
// of 1/255.
TEST(PublishedInput, OfSsd300IsTheWholeImageMinusItsMean) {
  const auto published = frontends::torchvision_input("weights/ssd300_vgg16_coco-b556d3b4.pth",
                                                      models::find_model("ssd300_vgg16", "coco"));
  ASSERT_TRUE(published);
  const data::TransformOptions& input = published->input;
  EXPECT_EQ(input.height, 300);
  EXPECT_EQ(input.width, 300);
  EXPECT_FALSE(input.training);
  EXPECT_EQ(input.resize_method, "bilinear");
  EXPECT_TRUE(input.resize_half_pixel_centers);
  constexpr std::array<double, 3> kMean = {0.48235, 0.45882, 0.40784};
  for (size_t c = 0; c < kMean.size(); ++c) {
    EXPECT_EQ(input.normalization.scale[c], 1);
    EXPECT_NEAR(input.normalization.shift[c], -255 * kMean[c], 1e-4);
  }
  EXPECT_THAT(published->choice, HasSubstr("all of the image to 300x300, pixels minus a mean"));
}

// torchvision's probabilities of the pictures, by the file of weights and the name of the model alone.
TEST(PublishedInput, PredictionsAreTorchvisions) {
  const core::TempDir temp;
  std::map<std::string, std::string> written;
  std::ifstream lines = golden_file("torchvision_predictions.txt");
  int compared = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream text(line);
    std::string model, picture;
    text >> model >> picture;
    const auto path = picture.starts_with("trainyard/") ? std::string(TRAINYARD_SOURCE_DIR "/") + picture
                                                        : core::shared_data(picture).value_or("");
    if (path.empty()) continue;
    if (!written.contains(model)) {
      written[model] = temp.file(model + ".safetensors");
      write_drawn_weights(written[model], models::build_model("torchvision/" + model, "imagenet", {}),
                          model == "resnet18" ? 0.4 : 1.0);
    }
    PredictOptions options;
    options.model = {.path = written[model], .model = "torchvision/" + model};
    options.images = {path};
    options.json = true;
    options.top = 10;  // the five, in whatever order equal ones are
    std::ostringstream out;
    ::testing::internal::CaptureStderr();
    ASSERT_EQ(predict(options, out).images, 1);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("as torchvision makes them"));
    const auto said = nlohmann::json::parse(out.str());
    int64_t label = 0;
    double probability = 0;
    std::map<int64_t, double> by_class;
    for (const auto& each : said["top"]) by_class[each["class"].get<int64_t>()] = each["probability"].get<double>();
    while (text >> label >> probability) {
      EXPECT_NEAR(by_class[label], probability, 1e-3) << model << " " << picture << " " << label;
      ++compared;
    }
    if (model != "resnet18") continue;
    // Another way to see the picture, which the flags ask for, gives other numbers: these can tell them apart.
    options.input.input_preprocessor = "default";
    std::ostringstream otherwise;
    ::testing::internal::CaptureStderr();
    predict(options, otherwise);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("normalization is symmetric instead of mean_std"), HasSubstr(written[model])));
    const double other = nlohmann::json::parse(otherwise.str())["top"][0]["probability"].get<double>();
    EXPECT_GT(std::abs(other - said["top"][0]["probability"].get<double>()), 2e-3);
  }
  EXPECT_GE(compared, 10);
}

// A training that starts from them sees images as they do, and what it saves says so.
TEST(PublishedInput, TrainingsAndEvaluationsHaveIt) {
  const core::TempDir temp;
  const std::string weights = temp.file("w.safetensors");
  write_drawn_weights(weights, models::build_model("torchvision/squeezenet1_1", "imagenet", {.num_classes = 3}), 1);
  frontends::TfCnnOptions options;
  options.dialect = frontends::Dialect::kTrainyard;
  options.model = "torchvision/squeezenet1_1";
  options.num_classes = 3;
  options.weights = weights;
  options.device.gpu = false;
  options.batch_size = 1;
  options.mode = frontends::RunMode::kEvaluation;
  const auto is_torchvisions = [](const data::TransformOptions& input) {
    EXPECT_EQ(input.eval_resize_size, 256);
    EXPECT_TRUE(input.resize_antialias);
    EXPECT_EQ(input.normalization,
              data::Normalization::standardized(data::kImagenetMean, data::kImagenetStandardDeviation));
  };
  is_torchvisions(frontends::prepare(options).input.transform);
  options.mode = frontends::RunMode::kTraining;
  const frontends::PreparedRun training = frontends::prepare(options);
  is_torchvisions(training.input.transform);
  EXPECT_EQ(training.input.transform.crop.method, data::CropMethod::kResizedCrop);
  EXPECT_EQ(training.input.preprocessor, "torchvision");
  options.image_size = 112;
  EXPECT_EQ(frontends::prepare(options).input.transform.eval_resize_size, 128);
  options.input.images.normalization = "symmetric";
  EXPECT_EQ(frontends::prepare(options).input.transform.normalization, data::Normalization::symmetric());
  // tf_cnn_benchmarks' dialect goes by its flags alone.
  options.dialect = frontends::Dialect::kTfCnnBenchmarks;
  options.input.images.normalization.reset();
  EXPECT_EQ(frontends::prepare(options).input.transform.normalization, data::Normalization::symmetric());
  EXPECT_EQ(frontends::prepare(options).input.transform.eval_resize_size, 0);

  const frontends::TrainedModel trained =
      frontends::load_trained_model({.path = weights, .model = options.model, .num_classes = 3});
  is_torchvisions(trained.input);
  const train::ModelDescription said = train::described_in(metadata_of(trained), "");
  is_torchvisions(*said.input);
  EXPECT_EQ(said.preprocessor, "torchvision");
}

class Timm : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = {{"architecture", "resnet18"},
               {"num_classes", 3},
               {"pretrained_cfg",
                {{"input_size", {3, 64, 64}},
                 {"interpolation", "bicubic"},
                 {"crop_pct", 0.95},
                 {"mean", {0.5, 0.4, 0.3}},
                 {"std", {0.25, 0.5, 0.2}}}}};
  }
  std::optional<frontends::TimmConfig> read() const {
    core::local_file_system().write_file_atomically(temp_.file("config.json"), config_.dump());
    return frontends::read_timm_config(temp_.file("model.safetensors"));
  }

  const core::TempDir temp_;
  nlohmann::json config_;
};

TEST_F(Timm, TheConfigSaysModelAndInput) {
  const auto timm = read();
  ASSERT_TRUE(timm);
  EXPECT_EQ(timm->model, "torchvision/resnet18");
  EXPECT_EQ(timm->num_classes, 3);
  const data::TransformOptions& input = timm->input.input;
  EXPECT_EQ(input.height, 64);
  EXPECT_EQ(input.eval_resize_size, 67) << "floor(64 / 0.95)";
  EXPECT_EQ(input.resize_method, "bicubic");
  EXPECT_TRUE(input.resize_antialias && input.resize_half_pixel_centers);
  EXPECT_NEAR(input.normalization.scale[2], 1 / (255 * 0.2), 1e-6);
  EXPECT_NEAR(input.normalization.shift[1], -0.8, 1e-6);

  // All that reads the weights takes it, and flags win.
  write_drawn_weights(temp_.file("model.safetensors"),
                      models::build_model("torchvision/resnet18", "imagenet", {.num_classes = 3}), 1);
  const frontends::TrainedModel trained = frontends::load_trained_model({.path = temp_.file("model.safetensors")});
  EXPECT_EQ(trained.identity.num_classes, 3);
  EXPECT_TRUE(frontends::evaluation_differences(input, trained.input).empty());
  frontends::TfCnnOptions options;
  options.dialect = frontends::Dialect::kTrainyard;
  options.model = "";
  options.weights = temp_.file("model.safetensors");
  options.device.gpu = false;
  options.batch_size = 1;
  options.mode = frontends::RunMode::kEvaluation;
  EXPECT_TRUE(frontends::evaluation_differences(input, frontends::prepare(options).input.transform).empty());
  options.input.images.resize_method = "bilinear";
  EXPECT_EQ(frontends::prepare(options).input.transform.resize_method, "bilinear");
}

TEST_F(Timm, DefaultsAndOtherCropsAreTimms) {
  config_["pretrained_cfg"] = {{"crop_mode", "squash"}, {"crop_pct", 0.9}};
  config_["architecture"] = "resnet50.a1_in1k";
  const auto squash = read();
  EXPECT_EQ(squash->model, "torchvision/resnet50");
  EXPECT_EQ(squash->input.input.eval_central_part, 0.9F);
  EXPECT_EQ(squash->input.input.eval_resize_size, 0);
  config_["pretrained_cfg"] = nlohmann::json::object();
  config_["architecture"] = "resnet50d";
  const auto plain = read();
  EXPECT_EQ(plain->model, "");
  EXPECT_EQ(plain->input.input.eval_resize_size, 256) << "crop_pct is 0.875";
  EXPECT_EQ(plain->input.input.resize_method, "bicubic");
}

TEST_F(Timm, KeepsHeightAndWidthApartAndSaysWhatItDoes) {
  config_["pretrained_cfg"]["input_size"] = {3, 64, 96};
  const auto centre = read();
  ASSERT_TRUE(centre);
  EXPECT_EQ(centre->input.input.height, 64);
  EXPECT_EQ(centre->input.input.width, 96);
  EXPECT_EQ(centre->input.input.eval_resize_size, 101) << "floor(96 / 0.95)";
  EXPECT_EQ(centre->input.choice, "images are made as timm's " + temp_.file("config.json") +
                                      " says: shorter side to 101, bicubic, the centre of 64x96");
  config_["pretrained_cfg"]["crop_mode"] = "squash";
  EXPECT_EQ(read()->input.choice, "images are made as timm's " + temp_.file("config.json") +
                                      " says: the centre, 0.95 of both sides, bicubic");
  config_["pretrained_cfg"]["crop_pct"] = 1;
  EXPECT_EQ(read()->input.input.eval_central_part, 1);
  config_["pretrained_cfg"]["input_size"] = {3, 16384, 1};
  const auto longest = read();
  EXPECT_EQ(longest->input.input.height, 16384);
  EXPECT_EQ(longest->input.input.width, 1);
}

TEST_F(Timm, WhatIsNotTimmsIsPassedOverAndWhatCannotBeIsRefused) {
  EXPECT_FALSE(frontends::read_timm_config(temp_.file("model.safetensors")));
  core::local_file_system().write_file_atomically(temp_.file("config.json"), "{");
  EXPECT_FALSE(frontends::read_timm_config(temp_.file("model.safetensors")));
  const nlohmann::json good = config_;
  config_.erase("pretrained_cfg");
  EXPECT_FALSE(read());
  const std::pair<const char*, nlohmann::json> bad[] = {{"input_size", {3, 0, 64}},
                                                        {"input_size", {1, 64, 64}},
                                                        {"input_size", {3, 64, 16385}},
                                                        {"input_size", {3, 64}},
                                                        {"crop_pct", 0},
                                                        {"crop_pct", 1.5},
                                                        {"crop_pct", "x"},
                                                        {"interpolation", "lanczos"},
                                                        {"interpolation", 1},
                                                        {"mean", {1, 2}},
                                                        {"std", {0, 1, 1}},
                                                        {"std", {1, 1, "x"}},
                                                        {"crop_mode", "border"}};
  for (const auto& [member, value] : bad) {
    config_ = good;
    config_["pretrained_cfg"][member] = value;
    EXPECT_THAT(core::message_of([&] { read(); }, core::ErrorCode::kCorruptData),
                AllOf(HasSubstr("config.json"), HasSubstr(member)))
        << value;
  }
  config_ = good;
  config_["num_classes"] = -1;
  EXPECT_THAT(core::message_of([&] { read(); }, core::ErrorCode::kCorruptData), HasSubstr("num_classes"));
}

}  // namespace
}  // namespace trainyard::cli::published_input_test
