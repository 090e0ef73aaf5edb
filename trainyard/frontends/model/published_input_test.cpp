#include "trainyard/frontends/model/published_input.h"

#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::frontends::published_input_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr;
using Json = nlohmann::json;

// All that is chosen of a transform but its normalization: height x width, the size and the part before the crop, ...
std::string chosen(const data::TransformOptions& input) {
  return fmt::format("{}x{} {} resize {} part {} convention {} half {} antialias {} exif {} training {}", input.height,
                     input.width, input.resize_method, input.eval_resize_size, input.eval_central_part,
                     static_cast<int>(input.resize_convention), input.resize_half_pixel_centers, input.resize_antialias,
                     input.exif_orientation, input.training);
}

// As Pillow makes images for torchvision and timm: 2 is data::ResizeConvention::kTorchvision.
std::string as_pillow(const std::string& sizes_and_method, int64_t resize, const std::string& part = "0") {
  return fmt::format("{} resize {} part {} convention 2 half true antialias true exif true training false",
                     sizes_and_method, resize, part);
}

// `mean` and `deviation` of numbers from 0 to 1.
void expect_normalization(const data::Normalization& actual, const std::vector<double>& mean,
                          const std::vector<double>& deviation, const std::string& where) {
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(actual.scale[c], 1 / (255 * deviation[c]), 1e-6) << where << " " << c;
    EXPECT_NEAR(actual.shift[c], -mean[c] / deviation[c], 1e-5) << where << " " << c;
  }
}

bool in_zoo(const std::string& network) {
  return !core::error_of([&] { static_cast<void>(models::find_model("torchvision/" + network, "imagenet")); });
}

// The file's numbers are those of torchvision's own transforms().
TEST(PublishedInput, IsChosenByTheNetworkAndTheFile) {
  std::ifstream lines(core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/frontends/testdata/torchvision_inputs.txt"));
  std::string network, set, file, method;
  int64_t crop = 0, resize = 0;
  std::vector<double> numbers(6);
  int compared = 0;
  while (lines >> network >> set >> file >> crop >> resize >> method) {
    for (double& number : numbers) lines >> number;
    if (set == "IMAGENET1K_FEATURES" || !in_zoo(network)) continue;  // the first is of a detector
    const std::string where = network + " " + set;
    const auto published = torchvision_input("of/" + file, models::find_model("torchvision/" + network, "imagenet"));
    ASSERT_TRUE(published) << where;
    EXPECT_EQ(chosen(published->input), as_pillow(fmt::format("{0}x{0} {1}", crop, method), resize)) << where;
    EXPECT_EQ(published->preprocessor, "torchvision") << where;
    // These networks of torchvision turn its numbers into those from -1 to 1.
    const bool symmetric = network == "googlenet" || network == "inception_v3";
    if (symmetric) numbers.assign(6, 0.5);
    expect_normalization(published->input.normalization, {numbers[0], numbers[1], numbers[2]},
                         {numbers[3], numbers[4], numbers[5]}, where);
    EXPECT_EQ(published->choice,
              fmt::format("images are made as torchvision makes them for its weights of {}: shorter side to {}, {}, "
                          "the centre of {}x{}, {}; flags such as --input_preprocessor, --eval_resize_size and "
                          "--normalization choose otherwise",
                          network, resize, method, crop, crop,
                          symmetric ? "pixels from -1 to 1" : "ImageNet's mean and standard deviation"));
    ++compared;
  }
  EXPECT_GT(compared, 50);
}

TEST(PublishedInput, TheFolderOfTheFileChoosesNothing) {
  const models::ModelInfo& resnet = models::find_model("torchvision/resnet50", "imagenet");
  EXPECT_EQ(torchvision_input("a/resnet50-11ad3fa6.pth", resnet)->input.eval_resize_size, 232);
  EXPECT_EQ(torchvision_input("resnet50-11ad3fa6/mine.pth", resnet)->input.eval_resize_size, 256);
  EXPECT_EQ(torchvision_input("resnet101-cd907fc2.pth", resnet)->input.eval_resize_size, 256) << "of another network";
}

TEST(PublishedInput, IsOfNetworksThatEqualTorchvisions) {
  const auto of = [](const char* equals, models::Task task) {
    return torchvision_input("mine.pth", {.name = "resnet50", .task = task, .equals = equals});
  };
  for (const models::Task task : {models::Task::kClassification, models::Task::kDetection}) {
    EXPECT_FALSE(of("", task));
    EXPECT_FALSE(of("tf_cnn_benchmarks resnet50", task));
    EXPECT_FALSE(of("not torchvision resnet50", task));
    EXPECT_TRUE(of("torchvision resnet50", task));
  }
}

// torchvision's GeneralizedRCNNTransform of ssd300_vgg16.
TEST(PublishedInput, OfDetectorsIsTheWholeImageMinusTheMean) {
  const auto published = torchvision_input("mine.pth", {.name = "mine",
                                                        .family = models::DatasetFamily::kCoco,
                                                        .task = models::Task::kDetection,
                                                        .equals = "torchvision ssd300_vgg16",
                                                        .image_size = 160});
  ASSERT_TRUE(published);
  EXPECT_EQ(chosen(published->input),
            "160x160 bilinear resize 0 part 0 convention 0 half true antialias false exif false training false");
  EXPECT_EQ(published->preprocessor, "");
  const double mean[] = {0.48235, 0.45882, 0.40784};
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_EQ(published->input.normalization.scale[c], 1);
    EXPECT_NEAR(published->input.normalization.shift[c], -255 * mean[c], 1e-4) << c;
  }
  EXPECT_EQ(published->choice,
            "images are made as torchvision makes them for its weights of mine: all of the image to 160x160, pixels "
            "minus a mean");
}

class TimmInput : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = Json::parse(R"({"architecture": "resnext50_32x4d.tv_in1k", "num_classes": 7, "pretrained_cfg": {
      "input_size": [3, 48, 80], "interpolation": "nearest", "crop_pct": 0.75, "mean": [0.5, 0.4, 0.3],
      "std": [0.25, 0.5, 0.2]}})");
  }

  std::string path() const { return temp_.file("config.json"); }
  std::optional<TimmConfig> read_text(const std::string& text) const {
    core::local_file_system().write_file_atomically(path(), text);
    return read_timm_config(temp_.file("model.safetensors"));
  }
  std::optional<TimmConfig> read() const { return read_text(config_.dump()); }
  // `value` is JSON.
  std::optional<TimmConfig> read_with(const std::string& member, const std::string& value) const {
    Json config = config_;
    config["pretrained_cfg"][member] = Json::parse(value);
    return read_text(config.dump());
  }
  std::string refusal(const std::string& member, const std::string& value) const {
    return core::message_of([&] { static_cast<void>(read_with(member, value)); }, core::ErrorCode::kCorruptData);
  }
  // The message for a member whose value is `got`.
  std::string malformed(const std::string& member, const std::string& expected, const std::string& got) const {
    return fmt::format(
        "timm's config.json cannot be used: {}, {}: expected {}, got {}; correct it, or move it elsewhere and say by "
        "flags how images become input",
        path(), member, expected, got);
  }

  const core::TempDir temp_;
  Json config_;
};

TEST_F(TimmInput, IsThatOfEachMember) {
  const auto timm = read();
  ASSERT_TRUE(timm);
  EXPECT_EQ(timm->path, path());
  EXPECT_EQ(timm->model, "torchvision/resnext50_32x4d");
  EXPECT_EQ(timm->num_classes, 7);
  EXPECT_EQ(timm->input.preprocessor, "torchvision");
  EXPECT_EQ(chosen(timm->input.input), as_pillow("48x80 nearest", 106)) << "floor(80 / 0.75)";
  expect_normalization(timm->input.input.normalization, {0.5, 0.4, 0.3}, {0.25, 0.5, 0.2}, "");
  EXPECT_EQ(timm->input.choice, fmt::format("images are made as timm's {} says: shorter side to 106, nearest, the "
                                            "centre of 48x80",
                                            path()));
  EXPECT_EQ(chosen(read_with("input_size", "[3,80,48]")->input.input), as_pillow("80x48 nearest", 106));
  EXPECT_EQ(chosen(read_with("interpolation", R"("bilinear")")->input.input), as_pillow("48x80 bilinear", 106));
  EXPECT_EQ(chosen(read_with("crop_pct", "1")->input.input), as_pillow("48x80 nearest", 80));
}

TEST_F(TimmInput, SquashTakesAPartOfBothSides) {
  const auto timm = read_with("crop_mode", R"("squash")");
  ASSERT_TRUE(timm);
  EXPECT_EQ(chosen(timm->input.input), as_pillow("48x80 nearest", 0, "0.75"));
  EXPECT_EQ(timm->input.choice,
            fmt::format("images are made as timm's {} says: the centre, 0.75 of both sides, nearest", path()));
}

TEST_F(TimmInput, DefaultsAreTimms) {
  const Json nothing = Json::parse(R"({"pretrained_cfg": {}})");
  const Json nulls = Json::parse(R"({"architecture": null, "num_classes": null, "pretrained_cfg": {
    "input_size": null, "interpolation": null, "crop_pct": null, "crop_mode": null, "mean": null, "std": null}})");
  for (const Json& config : {nothing, nulls}) {
    config_ = config;
    const auto timm = read();
    ASSERT_TRUE(timm) << config;
    EXPECT_EQ(timm->model, "");
    EXPECT_EQ(timm->num_classes, 0);
    EXPECT_EQ(chosen(timm->input.input), as_pillow("224x224 bicubic", 256)) << "224 / 0.875";
    expect_normalization(timm->input.input.normalization, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}, config.dump());
  }
}

TEST_F(TimmInput, NetworksWithTorchvisionsParametersAreKnown) {
  const auto model_of = [&](const std::string& architecture) {
    config_["architecture"] = architecture;
    return read()->model;
  };
  for (const std::string name : {"resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d",
                                 "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2",
                                 "densenet121", "densenet161", "densenet169", "densenet201", "inception_v3"}) {
    EXPECT_EQ(model_of(name), "torchvision/" + name);
    EXPECT_EQ(model_of(name + ".a1_in1k"), "torchvision/" + name);
  }
  for (const std::string name : {"", "resnet50d", "resnet5", "sresnet50", "vit_base_patch16_224", "a1.resnet50"}) {
    EXPECT_EQ(model_of(name), "") << name;
  }
}

TEST_F(TimmInput, OtherFilesAreNone) {
  EXPECT_FALSE(read_timm_config(temp_.file("model.safetensors"))) << "there is no config.json";
  EXPECT_FALSE(read_timm_config(temp_.file("no_folder/model.safetensors")));
  for (const std::string text : {"", "{", "null", "7", "[]", R"(["pretrained_cfg"])", "{}", R"({"pretrained_cfg": 1})",
                                 R"({"pretrained_cfg": null})", R"({"pretrained_cfg": []})", R"({"size": 1e400})"}) {
    EXPECT_FALSE(read_text(text)) << text;
  }
  core::local_file_system().make_directories(temp_.file("folder/config.json"));
  EXPECT_FALSE(read_timm_config(temp_.file("folder/model.safetensors"))) << "a folder of that name";
}

TEST_F(TimmInput, DeepAndLargeFilesAreNone) {
  const auto with_arrays = [&](size_t depth) {
    config_["extra"] = Json::parse(std::string(depth, '[') + std::string(depth, ']'));
    return read().has_value();
  };
  EXPECT_TRUE(with_arrays(16));
  EXPECT_FALSE(with_arrays(17));
  config_.erase("extra");
  std::string text = config_.dump();
  text.resize(size_t{1} << 20, ' ');
  EXPECT_TRUE(read_text(text)) << "1 MiB";
  EXPECT_FALSE(read_text(text + " "));
}

// Python writes NaN and Infinity as they are. The input of such a file is not what its weights were trained on.
TEST_F(TimmInput, TextsThatAreNoJsonAreRefused) {
  const std::pair<std::string, std::string> bad[] = {{"1e400", "'1e400'"},
                                                     {"-1e400", "'-1e400'"},
                                                     {"NaN", "parse error"},
                                                     {"Infinity", "parse error"},
                                                     {"", "parse error"}};
  for (const auto& [value, said] : bad) {
    std::string text = config_.dump();
    text.replace(text.find("0.75"), 4, value);
    EXPECT_THAT(core::message_of([&] { static_cast<void>(read_text(text)); }, core::ErrorCode::kCorruptData),
                AllOf(HasSubstr(path() + ", its text: expected JSON, in which numbers are finite, got "),
                      HasSubstr(said), HasSubstr("; correct it, or move it elsewhere")));
  }
}

TEST_F(TimmInput, MalformedSizesAreRefused) {
  const std::string expected = "[3, height, width], sides up to 16384";
  for (const std::string value : {"[3,0,64]", "[3,64,0]", "[1,64,64]", "[3,64,16385]", "[3,16385,64]", "[3,64]",
                                  "[3,64,64,3]", "[3,-1,64]", "[3,64,1.5]", "[3,\"64\",64]", "64"}) {
    EXPECT_EQ(refusal("input_size", value), malformed("input_size", expected, value));
  }
  EXPECT_EQ(chosen(read_with("input_size", "[3,16384,1]")->input.input), as_pillow("16384x1 nearest", 21845));
  EXPECT_EQ(chosen(read_with("input_size", "[3,1,16384]")->input.input), as_pillow("1x16384 nearest", 21845));
}

TEST_F(TimmInput, MalformedCropsAreRefused) {
  for (const std::string value : {"0", "-0.5", "1.5", "\"x\"", "true", "[1]"}) {
    EXPECT_EQ(refusal("crop_pct", value), malformed("crop_pct", "a number above 0, at most 1", value));
  }
  for (const std::string value : {"0.00122", "1e-300"}) {  // of 80 pixels: 65573, and more than any integer
    EXPECT_EQ(refusal("crop_pct", value),
              malformed("crop_pct", "a part by which the resized side is at most 65535 pixels", value));
  }
  EXPECT_EQ(chosen(read_with("crop_pct", "0.00123")->input.input), as_pillow("48x80 nearest", 65040));
  EXPECT_EQ(refusal("crop_mode", R"("border")"), malformed("crop_mode", "center or squash", "border"));
  EXPECT_EQ(refusal("crop_mode", "3"), malformed("crop_mode", "a text", "3"));
  EXPECT_EQ(refusal("interpolation", R"("lanczos")"),
            malformed("interpolation", "bilinear, bicubic or nearest", "lanczos"));
  EXPECT_EQ(refusal("interpolation", "[1,2]"), malformed("interpolation", "a text", "[1,2]"));
}

TEST_F(TimmInput, MalformedNormalizationsAreRefused) {
  for (const std::string member : {"mean", "std"}) {
    for (const std::string value : {"[1,2]", "[1,2,3,4]", "[]", "[\"x\",1,2]", "[1,2,\"x\"]", "[1,2,255.5]",
                                    "[-255.5,1,2]", "[1,null,2]", "[1e+300,1,2]", "1", "\"x\"", "{}"}) {
      EXPECT_EQ(refusal(member, value), malformed(member, "three numbers", value));
    }
  }
  for (const std::string value : {"[0,1,1]", "[1,0,1]", "[1,1,0]", "[1,-0.5,1]", "[9e-07,1,1]"}) {
    EXPECT_EQ(refusal("std", value), malformed("std", "numbers above 0", value));
  }
  const auto smallest = read_with("std", "[1e-06,255,1]");
  ASSERT_TRUE(smallest);
  EXPECT_NEAR(smallest->input.input.normalization.scale[0], 1 / 255e-6, 0.01);
  EXPECT_NEAR(smallest->input.input.normalization.scale[1], 1 / 65025.0, 1e-9);
  const auto largest = read_with("mean", "[255,-255,0]");
  ASSERT_TRUE(largest);
  EXPECT_NEAR(largest->input.input.normalization.shift[0], -1020, 1e-3);
  EXPECT_NEAR(largest->input.input.normalization.shift[1], 510, 1e-3);
  EXPECT_NEAR(largest->input.input.normalization.shift[2], 0, 1e-9);
}

TEST_F(TimmInput, MalformedClassesAndNamesAreRefused) {
  const auto refused = [&](const std::string& member, const std::string& value) {
    Json config = config_;
    config[member] = Json::parse(value);
    return core::message_of([&] { static_cast<void>(read_text(config.dump())); }, core::ErrorCode::kCorruptData);
  };
  for (const std::string value : {"0", "-1", "16777217", "1.5", "\"x\""}) {
    EXPECT_EQ(refused("num_classes", value), malformed("num_classes", "a number from 1 on", value));
  }
  for (const int64_t count : {1, 16'777'216}) {
    config_["num_classes"] = count;
    EXPECT_EQ(read()->num_classes, count);
  }
  EXPECT_EQ(refused("architecture", "5"), malformed("architecture", "a text", "5"));
  const std::string cut = "\"" + std::string(79, 'a');
  EXPECT_EQ(refused("num_classes", "\"" + std::string(100, 'a') + "\""),
            malformed("num_classes", "a number from 1 on", cut));
}

// 80 characters of what is wrong are told.
TEST_F(TimmInput, LongValuesAreCut) {
  const std::string text = "\"" + std::string(100, 'a') + "\"", cut = "\"" + std::string(79, 'a');
  EXPECT_EQ(refusal("input_size", text), malformed("input_size", "[3, height, width], sides up to 16384", cut));
  EXPECT_EQ(refusal("crop_pct", text), malformed("crop_pct", "a number above 0, at most 1", cut));
  EXPECT_EQ(refusal("mean", text), malformed("mean", "three numbers", cut));
  EXPECT_EQ(refusal("interpolation", "[" + text + "]"), malformed("interpolation", "a text", "[" + cut.substr(0, 79)));
}

}  // namespace
}  // namespace trainyard::frontends::published_input_test
