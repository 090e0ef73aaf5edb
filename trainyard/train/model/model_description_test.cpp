#include "trainyard/train/model/model_description.h"

#include <cstdint>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/graph/graph_text.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::train::model_description_test {
namespace {

using ::testing::ElementsAre;

nn::Graph small_graph() {
  nn::GraphBuilder b({.image = {3, 24, 32}, .name = "small"});
  return b.build(b.linear("fc", b.global_average_pool("pool", b.input()), {.out_features = 4}));
}

// Each number differs from all others, and none is a default.
ModelDescription whole() {
  data::TransformOptions input{.height = 24, .width = 32, .training = false};
  input.resize_method = "bicubic";
  input.resize_antialias = true;
  input.eval_resize_size = 40;
  input.resize_convention = data::ResizeConvention::kDali;
  input.eval_scaled_decode = true;
  input.exif_orientation = true;
  const float scale[] = {0.5F, 0.25F, 0.125F}, shift[] = {-1, 2, 0.5F};
  for (size_t c = 0; c < 3; ++c) {
    input.normalization.scale[c] = scale[c];
    input.normalization.shift[c] = shift[c];
  }
  return {.name = "other",
          .input = input,
          .preprocessor = "torchvision",
          .num_classes = 4,
          .classes = {"cat", "", "dog"},
          .first_output = 1,
          .label_sets = true,
          .classes_of_records = true,
          .graph = small_graph()};
}

TEST(ModelDescription, IsWrittenAsTheseTexts) {
  const ModelMetadata metadata = metadata_of(whole());
  EXPECT_EQ(metadata.size(), 6U);
  EXPECT_EQ(metadata.at("trainyard.model"), "other");
  EXPECT_EQ(metadata.at("trainyard.dataset"), "imagenet");
  EXPECT_EQ(metadata.at("trainyard.num_classes"), "4");
  EXPECT_EQ(metadata.at("trainyard.classes"),
            R"({"first_output":1,"names":["cat","","dog"],"label_sets":true,"of_records":true})");
  EXPECT_EQ(metadata.at("trainyard.input"),
            R"({"height":24,"width":32,"layout":"NCHW","channel_order":"RGB",)"
            R"("resize":"shorter side to 40, proportions kept; then the centre; rounding as dali",)"
            R"("eval_rule":"scaled_centre","resize_method":"bicubic","resize_antialias":true,)"
            R"("resize_half_pixel_centers":false,"resize_convention":"dali","eval_resize_size":40,)"
            R"("eval_central_part":0.0,"scaled_decode":true,"exif_orientation":true,)"
            R"("input_preprocessor":"torchvision","mean":[2.0,-8.0,-4.0],"std":[2.0,4.0,8.0],)"
            R"("scale":[0.5,0.25,0.125],"shift":[-1.0,2.0,0.5]})");
  const ModelMetadata least = metadata_of({.name = "tensors", .transform = ""});
  EXPECT_EQ(least, (ModelMetadata{{"trainyard.model", "tensors"}}));
}

TEST(ModelDescription, IsReadAsItWasWritten) {
  const ModelDescription written = whole(), read = described_in(metadata_of(written), "a file");
  EXPECT_EQ(read.name, "other");
  EXPECT_EQ(read.transform, "imagenet");
  EXPECT_EQ(read.preprocessor, "torchvision");
  EXPECT_EQ(read.num_classes, 4);
  EXPECT_THAT(read.classes, ElementsAre("cat", "", "dog"));
  EXPECT_EQ(read.first_output, 1);
  EXPECT_TRUE(read.label_sets);
  EXPECT_TRUE(read.classes_of_records);
  EXPECT_EQ(nn::graph_text(*read.graph), nn::graph_text(small_graph()));
  EXPECT_EQ(read.input->height, 24);
  EXPECT_EQ(read.input->width, 32);
  EXPECT_FALSE(read.input->training);
  EXPECT_EQ(read.input->resize_method, "bicubic");
  EXPECT_TRUE(read.input->resize_antialias);
  EXPECT_FALSE(read.input->resize_half_pixel_centers);
  EXPECT_EQ(read.input->resize_convention, data::ResizeConvention::kDali);
  EXPECT_EQ(read.input->eval_resize_size, 40);
  EXPECT_EQ(read.input->eval_central_part, 0);
  EXPECT_TRUE(read.input->scaled_decode);
  EXPECT_TRUE(read.input->eval_scaled_decode);
  EXPECT_TRUE(read.input->exif_orientation);
  EXPECT_EQ(read.input->normalization, written.input->normalization);

  ModelDescription plain = whole();
  plain.label_sets = plain.classes_of_records = false;
  plain.input->resize_antialias = plain.input->eval_scaled_decode = plain.input->exif_orientation = false;
  plain.input->resize_half_pixel_centers = true;
  plain.input->eval_resize_size = 0;
  plain.input->eval_central_part = 0.875F;
  const ModelDescription other = described_in(metadata_of(plain), "a file");
  EXPECT_FALSE(other.label_sets);
  EXPECT_FALSE(other.classes_of_records);
  EXPECT_FALSE(other.input->resize_antialias);
  EXPECT_TRUE(other.input->resize_half_pixel_centers);
  EXPECT_FALSE(other.input->scaled_decode);
  EXPECT_FALSE(other.input->eval_scaled_decode);
  EXPECT_FALSE(other.input->exif_orientation);
  EXPECT_EQ(other.input->eval_resize_size, 0);
  EXPECT_EQ(other.input->eval_central_part, 0.875F);
}

TEST(ModelDescription, SaysTheRuleOfEachWayToScale) {
  const auto rule = [](const std::function<void(ModelDescription&)>& change) {
    ModelDescription description = whole();
    description.input->eval_resize_size = 0;
    change(description);
    const auto json = nlohmann::json::parse(metadata_of(description).at("trainyard.input"));
    return json.at("eval_rule").get<std::string>() + ": " + json.at("resize").get<std::string>();
  };
  EXPECT_EQ(rule([](ModelDescription&) {}),
            "scaled_centre: scaled, proportions kept, until both sides are at least 1.145 times the model's; then the "
            "centre");
  EXPECT_EQ(rule([](ModelDescription& said) { said.input->eval_central_part = 0.875F; }),
            "central_part: the centre, 0.875 of both sides; then both sides to the model's, ignoring proportions");
  EXPECT_EQ(rule([](ModelDescription& said) { said.input->resize_method = "crop"; }),
            "centre: nothing is scaled: the centre, with zeros around an image that is smaller");
  EXPECT_EQ(rule([](ModelDescription& said) { said.transform = "coco"; }),
            "whole: both sides to the model's, ignoring proportions");
  EXPECT_EQ(rule([](ModelDescription& said) { said.transform = "shapes"; }),
            "stretched: both sides to the model's, ignoring proportions, rounded to whole pixel values");
}

TEST(ModelDescription, NamesTheOutputsFromTheFirstClassOn) {
  const ModelDescription said = whole();
  EXPECT_EQ(said.class_name(0), "");
  EXPECT_EQ(said.class_name(1), "cat");
  EXPECT_EQ(said.class_name(2), "");
  EXPECT_EQ(said.class_name(3), "dog");
  EXPECT_EQ(said.class_name(4), "");
}

TEST(ModelDescription, TheSizeOfImagesIsReadAlone) {
  EXPECT_EQ(image_size_in(metadata_of(whole()), "a file"), nn::Size2d(24, 32));
  EXPECT_EQ(image_size_in({{"trainyard.model", "other"}}, "a file"), nn::Size2d(0));
  const core::Error error = core::thrown_by([] { (void)image_size_in({{"trainyard.input", "[]"}}, "a file"); });
  EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
  EXPECT_STREQ(error.what(),
               "metadata of the model is malformed: a file, trainyard.input: expected what trainyard export writes; "
               "export it again");
}

// Returns the entry that is called malformed, or "" where the description is read.
std::string malformed_in(const ModelMetadata& metadata) {
  const auto error = core::error_of([&] { (void)described_in(metadata, "m"); });
  if (!error) return "";
  EXPECT_EQ(error->code(), core::ErrorCode::kCorruptData) << error->what();
  return error->detail().where;
}

TEST(ModelDescription, CountsAreReadUpToTheirBounds) {
  const auto outputs = [](const std::string& text) { return malformed_in({{"trainyard.num_classes", text}}); };
  for (const int64_t count : {int64_t{1}, int64_t{2}, kMostOutputs}) EXPECT_EQ(outputs(std::to_string(count)), "");
  for (const int64_t count : {int64_t{-1}, int64_t{0}, kMostOutputs + 1}) {
    EXPECT_EQ(outputs(std::to_string(count)), "m, trainyard.num_classes") << count;
  }
  EXPECT_EQ(outputs("2.5"), "m, trainyard.num_classes");
  const auto classes = [](int64_t first, const std::string& names, const std::string& count) {
    ModelMetadata metadata{
        {"trainyard.classes", R"({"first_output":)" + std::to_string(first) + R"(,"names":)" + names + "}"}};
    if (!count.empty()) metadata["trainyard.num_classes"] = count;
    return malformed_in(metadata);
  };
  EXPECT_EQ(classes(0, R"(["a","b"])", "2"), "");
  EXPECT_EQ(classes(1, R"(["a","b"])", "3"), "");
  EXPECT_EQ(classes(1, R"(["a","b"])", ""), "") << "the number of outputs is not known";
  EXPECT_EQ(classes(0, R"(["a","b"])", "1"), "m, trainyard.classes");
  EXPECT_EQ(classes(1, R"(["a","b"])", "2"), "m, trainyard.classes");
  EXPECT_EQ(classes(-1, R"(["a"])", "3"), "m, trainyard.classes");
  EXPECT_EQ(classes(2, R"(["a"])", "3"), "m, trainyard.classes");
}

TEST(ModelDescription, FieldsOfTheInputAreReadUpToTheirBounds) {
  const auto input = [](const char* field, const nlohmann::json& value) {
    ModelDescription description = whole();
    description.input->eval_resize_size = 0;
    ModelMetadata metadata = metadata_of(description);
    auto json = nlohmann::json::parse(metadata.at("trainyard.input"));
    json[field] = value;
    metadata["trainyard.input"] = json.dump();
    return malformed_in(metadata);
  };
  const std::string refused = "m, trainyard.input";
  for (const char* side : {"height", "width"}) {
    EXPECT_EQ(input(side, 1), "") << side;
    EXPECT_EQ(input(side, models::kLongestImageSide), "") << side;
    EXPECT_EQ(input(side, 0), refused) << side;
    EXPECT_EQ(input(side, models::kLongestImageSide + 1), refused) << side;
  }
  EXPECT_EQ(input("eval_resize_size", 0), "");
  EXPECT_EQ(input("eval_resize_size", 32), "") << "the longer side";
  EXPECT_EQ(input("eval_resize_size", 31), refused);
  EXPECT_EQ(input("eval_resize_size", -1), refused);
  EXPECT_EQ(input("eval_resize_size", kLongestResize), "");
  EXPECT_EQ(input("eval_resize_size", kLongestResize + 1), refused);
  EXPECT_EQ(input("eval_central_part", 1), "");
  EXPECT_EQ(input("eval_central_part", 1.5), refused);
  EXPECT_EQ(input("resize_method", "pillow"), refused);
  EXPECT_EQ(input("resize_convention", "pillow"), refused);
  EXPECT_EQ(input("input_preprocessor", ""), "");
  EXPECT_EQ(input("input_preprocessor", "pillow"), refused);
  for (const size_t place : {0U, 1U, 2U}) {
    nlohmann::json scale = {0.5, 0.25, 0.125}, shift = {-1, 2, 0.5};
    shift[place] = 0;
    EXPECT_EQ(input("shift", shift), "") << place;
    shift[place] = 1e300;
    EXPECT_EQ(input("shift", shift), refused) << place << ": no float";
    scale[place] = 0;
    EXPECT_EQ(input("scale", scale), refused) << place;
    scale[place] = 1e300;
    EXPECT_EQ(input("scale", scale), refused) << place << ": no float";
  }
  EXPECT_EQ(input("scale", {1, 2}), refused);
  EXPECT_EQ(input("unknown", nlohmann::json::parse("[[[1]]]")), "");
  EXPECT_EQ(input("unknown", nlohmann::json::parse("[[[[1]]]]")), refused) << "too deep";
}

TEST(ModelDescription, IsKeptInACheckpointUnderItsPrefix) {
  core::MemoryState state;
  state.text("data/classes", "of another writer");
  EXPECT_TRUE(saved_metadata(state).empty());
  const ModelMetadata metadata = metadata_of(whole());
  save_metadata(metadata, state);
  EXPECT_EQ(saved_metadata(state), metadata);
  const core::StateReader& reader = state;
  EXPECT_EQ(reader.text("description/trainyard.model"), "other");
  EXPECT_EQ(reader.names().size(), 7U);
}

}  // namespace
}  // namespace trainyard::train::model_description_test
