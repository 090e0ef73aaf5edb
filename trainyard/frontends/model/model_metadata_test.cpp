#include "trainyard/frontends/model/model_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/testing/error.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/detection/ssd_transform.h"

namespace trainyard::frontends::model_metadata_test {
namespace {

TrainedModel model() {
  TrainedModel trained;
  trained.identity = {.model = "resnet18", .dataset = "imagenet", .num_classes = 3};
  trained.classes = {.names = {"cat", "a\n\"b\""}, .first_output = 1};
  trained.input.height = 160;
  trained.input.width = 224;
  trained.input.eval_resize_size = 256;
  trained.input.resize_antialias = true;
  trained.input.normalization =
      data::Normalization::standardized({123.675F, 116.28F, 103.53F}, {58.395F, 57.12F, 57.375F});
  return trained;
}

TEST(ModelMetadata, WhatIsWrittenIsRead) {
  const TrainedModel trained = model();
  const ModelMetadata metadata = metadata_of(trained);
  const train::ModelDescription read = train::described_in(metadata, "");
  EXPECT_EQ(read.name, "resnet18");
  EXPECT_EQ(read.transform, "imagenet");
  EXPECT_EQ(read.num_classes, 3);
  EXPECT_EQ(read.classes, trained.classes.names);
  EXPECT_EQ(read.first_output, 1);
  EXPECT_EQ(read.input->eval_resize_size, 256);
  EXPECT_TRUE(read.input->resize_antialias);
  EXPECT_EQ(read.input->normalization, trained.input.normalization) << "to the bit";
  EXPECT_EQ(nn::Size2d(read.input->height, read.input->width), nn::Size2d(160, 224));
}

// Names that come from the training's records: by output, some of them not known.
TEST(ModelMetadata, NamesOfRecordsAreWritten) {
  TrainedModel trained = model();
  trained.classes = {};
  trained.label_names = {"", "cat", "", "beyond the outputs"};
  const train::ModelDescription read = train::described_in(metadata_of(trained), "");
  EXPECT_THAT(read.classes, ::testing::ElementsAre("", "cat", ""));
  EXPECT_EQ(read.first_output, 0);
  EXPECT_TRUE(read.classes_of_records);
  EXPECT_FALSE(train::described_in(metadata_of(model()), "").classes_of_records);
}

// The numbers that other programs' transforms take.
TEST(ModelMetadata, SaysMeanAndDeviationInUnitsOfPixels) {
  const auto input = nlohmann::json::parse(metadata_of(model()).at("trainyard.input"));
  const double mean[] = {123.675, 116.28, 103.53}, deviation[] = {58.395, 57.12, 57.375};
  for (int c = 0; c < 3; ++c) {
    EXPECT_NEAR(input["mean"][c].get<double>(), mean[c], 1e-4);
    EXPECT_NEAR(input["std"][c].get<double>(), deviation[c], 1e-4);
  }
  EXPECT_EQ(input["channel_order"], "RGB");
  EXPECT_EQ(input["height"], 160);
  EXPECT_EQ(input["width"], 224);
  EXPECT_EQ(input["resize"], "shorter side to 256, proportions kept; then the centre; rounding as plain");
}

// What the code does; tests/model_input_test.py does it again by the fields.
TEST(ModelMetadata, SaysHowImagesAreScaled) {
  const auto said = [](const char* preset, const std::string& dataset = "imagenet") {
    TrainedModel trained = model();
    trained.identity.dataset = dataset;
    trained.input = data::input_presets().get(preset);
    trained.input.set_size(96, 96);
    return nlohmann::json::parse(metadata_of(trained).at("trainyard.input"));
  };
  EXPECT_EQ(said("default")["resize"],
            "scaled, proportions kept, until both sides are at least 1.145 times the model's; then the centre");
  EXPECT_EQ(said("resnet_n")["eval_rule"], "central_part");
  EXPECT_EQ(said("dali")["resize"], "shorter side to 110, proportions kept; then the centre; rounding as dali");
  EXPECT_EQ(said("dali")["eval_rule"], "scaled_centre");
  EXPECT_EQ(said("tensorpack")["resize_convention"], "opencv");
  EXPECT_EQ(said("torchvision")["scaled_decode"], false);
  const auto small = said("default", "cifar10");
  EXPECT_EQ(small["eval_rule"], "stretched");
  EXPECT_EQ(small["resize_antialias"], true) << "as the transform of small images scales";
  EXPECT_EQ(small["resize_half_pixel_centers"], true);
}

// Where nothing is scaled, and for small images, the transforms decode JPEGs at their full size: a reader that decoded
// at a half would cut another part of the image out.
TEST(ModelMetadata, SaysScaledDecodeOnlyWhereImagesAreScaled) {
  const auto said = [](const std::string& dataset, const char* method) {
    TrainedModel trained = model();
    trained.identity.dataset = dataset;
    trained.input = {.training = false, .resize_method = method, .eval_scaled_decode = true};
    return nlohmann::json::parse(metadata_of(trained).at("trainyard.input"))["scaled_decode"].get<bool>();
  };
  EXPECT_TRUE(said("imagenet", "bilinear"));
  EXPECT_TRUE(said("coco", "bilinear"));
  EXPECT_FALSE(said("imagenet", "crop"));
  EXPECT_FALSE(said("cifar10", "bilinear"));
  EXPECT_FALSE(said("shapes", "bilinear"));
}

// A detector that is read from its file must see images as it did in its training.
TEST(ModelMetadata, SaysHowImagesWithBoxesAreScaled) {
  TrainedModel trained = model();
  trained.identity.dataset = "coco";
  trained.input = data::ssd300_input(/*training=*/false);
  trained.input.exif_orientation = true;
  const ModelMetadata metadata = metadata_of(trained);
  EXPECT_EQ(nlohmann::json::parse(metadata.at("trainyard.input"))["eval_rule"], "whole");
  const train::ModelDescription read = train::described_in(metadata, "");
  EXPECT_FALSE(read.input->resize_antialias || read.input->resize_half_pixel_centers);
  EXPECT_FALSE(read.input->exif_orientation) << "the transform takes images as they are stored";
  trained.input.resize_method = "nearest";
  trained.input.resize_half_pixel_centers = true;
  const train::ModelDescription other = train::described_in(metadata_of(trained), "");
  EXPECT_EQ(other.input->resize_method, "nearest");
  EXPECT_TRUE(other.input->resize_half_pixel_centers);
}

TEST(ModelMetadata, AConventionIsReadAndEarlierFilesHaveThePlainOne) {
  TrainedModel trained = model();
  trained.input.resize_convention = data::ResizeConvention::kDali;
  trained.input.exif_orientation = true;
  ModelMetadata metadata = metadata_of(trained);
  EXPECT_EQ(train::described_in(metadata, "").input->resize_convention, data::ResizeConvention::kDali);
  EXPECT_TRUE(train::described_in(metadata, "").input->exif_orientation);
  auto json = nlohmann::json::parse(metadata.at("trainyard.input"));
  json.erase("resize_convention");
  json.erase("exif_orientation");
  metadata["trainyard.input"] = json.dump();
  EXPECT_EQ(train::described_in(metadata, "").input->resize_convention, data::ResizeConvention::kPlain);
  EXPECT_FALSE(train::described_in(metadata, "").input->exif_orientation);
}

// What a checkpoint may hold, its file may, too.
TEST(ModelMetadata, TheLongestEvalResizeSizeIsRead) {
  TrainedModel trained = model();
  trained.input.eval_resize_size = 65'535;  // the most that --eval_resize_size takes
  EXPECT_EQ(train::described_in(metadata_of(trained), "").input->eval_resize_size, 65'535);
}

TEST(ModelMetadata, FilesOfOthersHaveNone) {
  const ModelMetadata other{{"format", "pt"}};
  const train::ModelDescription read = train::described_in(other, "");
  EXPECT_EQ(read.name, "");
  EXPECT_EQ(read.num_classes, 0);
  EXPECT_TRUE(read.classes.empty());
  EXPECT_FALSE(read.graph.has_value());
  EXPECT_FALSE(read.input.has_value());
}

// Images would be given to it in another order than it has learned.
TEST(ModelMetadata, AnotherOrderOfValuesIsRefused) {
  const auto message = [](const char* field, const nlohmann::json& value,
                          core::ErrorCode code = core::ErrorCode::kUnsupported) {
    ModelMetadata metadata = metadata_of(model());
    auto json = nlohmann::json::parse(metadata.at("trainyard.input"));
    json[field] = value;
    metadata["trainyard.input"] = json.dump();
    return core::message_of([&] { train::described_in(metadata, "m.onnx"); }, code);
  };
  EXPECT_EQ(message("channel_order", "RGB"), "no error");
  EXPECT_THAT(message("channel_order", "BGR"),
              ::testing::HasSubstr("another channel_order than models here do: m.onnx, trainyard.input: expected RGB, "
                                   "got BGR"));
  EXPECT_THAT(message("layout", "NHWC"), ::testing::HasSubstr("expected NCHW, got NHWC"));
  EXPECT_THAT(message("layout", 4, core::ErrorCode::kCorruptData),
              ::testing::HasSubstr("metadata of the model is malformed"));
}

TEST(ModelMetadata, MalformedEntriesAreNamed) {
  const auto fails = [](const char* entry, const std::string& text) {
    ModelMetadata metadata = metadata_of(model());
    metadata[entry] = text;
    return core::message_of([&] { train::described_in(metadata, "m.safetensors"); }, core::ErrorCode::kCorruptData);
  };
  for (const char* text : {"", "x", "-1", "0", "1.5", "[1]", "{", "[[[[[[[[[[1]]]]]]]]]]"}) {
    EXPECT_THAT(fails("trainyard.num_classes", text), ::testing::HasSubstr("m.safetensors, trainyard.num_classes"))
        << text;
  }
  for (const char* text : {"[]", "{}", R"({"first_output":7,"names":[]})", R"({"first_output":0,"names":[1]})"}) {
    EXPECT_THAT(fails("trainyard.classes", text), ::testing::HasSubstr("m.safetensors, trainyard.classes")) << text;
  }
  std::string zero = metadata_of(model()).at("trainyard.input");
  auto json = nlohmann::json::parse(zero);
  json["scale"][1] = 0;
  auto flat = nlohmann::json::parse(zero);
  flat["height"] = 0;
  auto huge = nlohmann::json::parse(zero);
  huge["eval_resize_size"] = int64_t{1} << 40;
  auto unknown = nlohmann::json::parse(zero);
  unknown["resize_convention"] = "pillow";
  for (const std::string& text : {std::string("null"), json.dump(), flat.dump(), huge.dump(), unknown.dump()}) {
    EXPECT_THAT(fails("trainyard.input", text), ::testing::HasSubstr("m.safetensors, trainyard.input")) << text;
  }
}

}  // namespace
}  // namespace trainyard::frontends::model_metadata_test
