#include "trainyard/data/detection/plain_detections.h"

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::data::plain_detections_test {
namespace {

class PlainDetections : public ::testing::Test {
 protected:
  std::optional<std::vector<CocoDetection>> read(const std::string& text) const {
    std::ofstream(path_) << text;  // as many small files as here would wait for the disk else
    return read_plain_detections(path_, files_);
  }
  const core::TempDir temp_;
  const std::string path_ = temp_.file("found.json");
  core::FileSystem& files_ = core::local_file_system();
};

constexpr const char* kOne = R"({"image_id": 5, "category_id": 18, "bbox": [1, 2.5, 30, 4e1], "score": 0.75})";
const CocoDetection kFound{
    .image_id = 5, .category_id = 18, .x = 1, .y = 2.5, .width = 30, .height = 40, .score = 0.75};

TEST_F(PlainDetections, AnyOrderAndSpaces) {
  const std::vector<CocoDetection> two = {kFound, kFound};
  EXPECT_EQ(read(fmt::format("[{},{}]", kOne, kOne)), two);
  EXPECT_EQ(read(fmt::format("\n [ {}\t,\r\n{} ]\n", kOne, kOne)), two);
  EXPECT_EQ(
      read(R"([{"score":0.75,"bbox" : [ 1 ,2.5,30,40.0 ],"category_id":18,"image_id":5},)" + std::string(kOne) + "]"),
      two);
  EXPECT_EQ(read("[]"), std::vector<CocoDetection>());
  EXPECT_EQ(read(" [ ] "), std::vector<CocoDetection>());
}

// What coco_detections_json() writes, in several parts of the file and pieces of each part; the numbers as a parser of
// all JSON reads them.
TEST_F(PlainDetections, LargeFilesHaveTheSameNumbers) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> draw(-1e3, 1e3);
  std::vector<CocoDetection> all;
  for (int64_t i = 0; i < 90'000; ++i) {
    const double scale = i % 100 == 0 ? 1e-300 : i % 7 == 0 ? 1e20 : 1;
    all.push_back({.image_id = i * 977 - 5,
                   .category_id = i % 90,
                   .x = draw(random) * scale,
                   .y = draw(random),
                   .width = static_cast<float>(draw(random)),
                   .height = draw(random),
                   .score = draw(random) / 1e3});
  }
  const std::string text = coco_detections_json(all);
  ASSERT_GT(text.size(), size_t{9} << 20);
  EXPECT_EQ(read(text), all);
  const nlohmann::json parsed = nlohmann::json::parse(text);
  for (size_t i = 0; i < all.size(); i += 97) EXPECT_EQ(parsed[i]["bbox"][0].get<double>(), all[i].x);
}

TEST_F(PlainDetections, OtherJsonIsLeftToAParserOfAll) {
  const std::string more = R"([{"image_id": 5, "category_id": 18, "bbox": [1, 2.5, 30, 4e1], "score": 0.75, "id": 3}])";
  EXPECT_EQ(read(more), std::nullopt);
  EXPECT_EQ(read_coco_detections(path_, files_), std::vector<CocoDetection>{kFound});
  const std::string escaped = R"([{"image\u005fid": 5, "category_id": 18, "bbox": [1, 2.5, 30, 4e1], "score": 0.75}])";
  EXPECT_EQ(read(escaped), std::nullopt);
  EXPECT_EQ(read_coco_detections(path_, files_), std::vector<CocoDetection>{kFound});
}

TEST_F(PlainDetections, WhatIsNoJsonIsRefused) {
  const std::string text = fmt::format("[{},{}]", kOne, kOne);
  for (size_t end = 0; end < text.size(); ++end) EXPECT_EQ(read(text.substr(0, end)), std::nullopt) << end;
  for (const char* number :
       {"01", "1.", ".5", "+1", "-", "1e", "nan", "inf", "1e999", "0x1", "1 2", "\"1\"", "[1]", ""}) {
    EXPECT_EQ(
        read(fmt::format(R"([{{"image_id": 5, "category_id": 18, "bbox": [1, 2.5, 30, 40], "score": {}}}])", number)),
        std::nullopt)
        << number;
    EXPECT_THROW(static_cast<void>(read_coco_detections(path_, files_)), core::Error) << number;
  }
  for (const char* id : {"5.0", "5e0", "9223372036854775808", "-"}) {
    EXPECT_EQ(read(fmt::format(R"([{{"image_id": {}, "category_id": 18, "bbox": [1, 2.5, 30, 40], "score": 1}}])", id)),
              std::nullopt)
        << id;
  }
  for (const std::string& wrong :
       {text + "]", text + ",", "[" + text + "]", std::string("[,") + kOne + "]", std::string("[") + kOne + ",]",
        std::string("[") + kOne + kOne + "]", std::string(kOne), std::string("{}"), std::string("[{}]"),
        std::string("[1]"),
        std::string(R"([{"image_id": 5, "image_id": 5, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 1}])"),
        std::string(R"([{"image_id": 5, "category_id": 1, "bbox": [1, 2, 3], "score": 1}])"),
        std::string(R"([{"image_id": 5, "category_id": 1, "bbox": [1, 2, 3, 4, 5], "score": 1}])"),
        std::string(R"([{"image_id": 5, "category_id": 1, "bbox": [1, 2, 3, 4]}])")}) {
    EXPECT_EQ(read(wrong), std::nullopt) << wrong;
  }
}

// More than is read at a time: what was read before is no list of all.
TEST_F(PlainDetections, ALaterPartMayBeWrong) {
  std::string text = "[";
  while (text.size() < (size_t{9} << 20)) text += std::string(kOne) + ",";
  EXPECT_NE(read(text + kOne + "]"), std::nullopt);
  EXPECT_EQ(read(text + "{}]"), std::nullopt);
}

}  // namespace
}  // namespace trainyard::data::plain_detections_test
