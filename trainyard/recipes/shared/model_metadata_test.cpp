#include "trainyard/recipes/shared/model_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/testing/error.h"

namespace trainyard::recipes {
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
  EXPECT_EQ(read.input.eval_resize_size, 256);
  EXPECT_TRUE(read.input.resize_antialias);
  EXPECT_EQ(read.input.normalization, trained.input.normalization) << "to the bit";
  EXPECT_EQ(nn::Size2d(read.input.height, read.input.width), nn::Size2d(160, 224));
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
  EXPECT_EQ(input["resize"], "shorter side to 256; then the centre");
}

TEST(ModelMetadata, FilesOfOthersHaveNone) {
  const ModelMetadata other{{"format", "pt"}};
  const train::ModelDescription read = train::described_in(other, "");
  EXPECT_EQ(read.name, "");
  EXPECT_EQ(read.num_classes, 0);
  EXPECT_TRUE(read.classes.empty());
  EXPECT_FALSE(read.graph.has_value());
  EXPECT_EQ(read.input.normalization, data::Normalization());
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
  for (const std::string& text : {std::string("null"), json.dump(), flat.dump(), huge.dump()}) {
    EXPECT_THAT(fails("trainyard.input", text), ::testing::HasSubstr("m.safetensors, trainyard.input")) << text;
  }
}

}  // namespace
}  // namespace trainyard::recipes
