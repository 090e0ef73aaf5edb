// The files of an evaluation whose images can be read, and of one without images.
#include "trainyard/frontends/model/evaluation_files.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/base64.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/data/tools/captioned_sheet.h"

namespace trainyard::frontends::evaluation_files_test {
namespace {

using ::testing::ElementsAre;

// Two images of 200 x 300 pixels: one from a long place, one from a place that just fits below its picture.
class Photos : public data::Dataset {
 public:
  int64_t size() const override { return 2; }
  core::Result<data::Record> read(int64_t index) const override {
    data::Record record;
    record.encoding = data::Encoding::kPng;
    record.bytes = data::encode_png(image_of(index));
    record.where = index == 0 ? "folder/of/images/cats/0001.png" : "photos/of/cats/0002.jpeg";
    return record;
  }
  int64_t label_count() const override { return 2; }
  static data::Image image_of(int64_t index) { return data::noisy_image(200, 300, static_cast<uint64_t>(index + 1)); }
};

class EvaluationFiles : public ::testing::Test {
 protected:
  // Both images are cats. The model is surer of a dog for the first one.
  EvaluationFiles() : counts_({.classes = 2, .most_wrong = 4}) {
    const std::vector<int64_t> samples{0, 1};
    counts_.add(at::tensor({0.0, 2.0, 0.0, 1.0}, at::kDouble).reshape({2, 2}), at::tensor({0, 0}, at::kLong), samples);
    evaluation_.loss = 1.5;
    evaluation_.top_1 = 0.25;
    evaluation_.top_5 = 0.75;
  }
  std::vector<std::string> write(const data::Dataset* images) const {
    return write_evaluation_files(temp_.path(), {.evaluation = evaluation_,
                                                 .counts = counts_,
                                                 .names = {"cat", "dog"},
                                                 .checkpoint = "run/model.ckpt-5",
                                                 .global_step = 5,
                                                 .images = images});
  }
  std::string read(const std::string& name) const { return core::local_file_system().read_file(temp_.file(name)); }

  const core::TempDir temp_;
  train::Evaluation evaluation_;
  train::PredictionCounts counts_;
};

TEST_F(EvaluationFiles, ShowTheMostWrongImagesWithTheEndsOfTheirPlaces) {
  const Photos photos;
  EXPECT_THAT(write(&photos), ElementsAre("evaluation.json", "confusion.csv", "confusion.svg", "per_class.csv",
                                          "calibration.svg", "most_wrong.png"));
  std::vector<data::CaptionedImage> sheet;
  sheet.push_back({data::thumbnail(Photos::image_of(0), 144), {"is cat", "88.1 % dog", "..f/images/cats/0001.png"}});
  sheet.push_back({data::thumbnail(Photos::image_of(1), 144), {"is cat", "73.1 % dog", "photos/of/cats/0002.jpeg"}});
  const std::vector<std::byte> png = data::encode_png(data::captioned_sheet(sheet, 144));
  EXPECT_TRUE(read("most_wrong.png") == std::string(reinterpret_cast<const char*>(png.data()), png.size()));

  const auto json = nlohmann::json::parse(read("evaluation.json"));
  EXPECT_EQ(json["checkpoint"], "run/model.ckpt-5");
  EXPECT_EQ(json["global_step"], 5);
  EXPECT_EQ(json["loss"], 1.5);
  EXPECT_EQ(json["top_1"], 0.25);
  EXPECT_EQ(json["top_5"], 0.75);
  EXPECT_EQ(json["classes"], (nlohmann::json{"cat", "dog"}));
  ASSERT_EQ(json["most_wrong"].size(), 2U);
  EXPECT_EQ(json["most_wrong"][0]["file"], "folder/of/images/cats/0001.png");
  EXPECT_EQ(json["most_wrong"][1]["file"], "photos/of/cats/0002.jpeg");
  for (const int64_t i : {0, 1}) {
    const data::Image small = data::thumbnail(data::thumbnail(Photos::image_of(i), 144), 96);
    EXPECT_TRUE(json["most_wrong"][static_cast<size_t>(i)]["image"] == core::base64_text(data::encode_jpeg(small, 80)))
        << i;
  }
}

TEST_F(EvaluationFiles, OfAnEvaluationWithoutImagesLackTheSheet) {
  const Photos photos;
  write(&photos);
  EXPECT_THAT(write(nullptr),
              ElementsAre("evaluation.json", "confusion.csv", "confusion.svg", "per_class.csv", "calibration.svg"));
  EXPECT_FALSE(core::local_file_system().exists(temp_.file("most_wrong.png"))) << "it was of the evaluation before";
  const auto json = nlohmann::json::parse(read("evaluation.json"));
  ASSERT_EQ(json["most_wrong"].size(), 2U);
  EXPECT_EQ(json["most_wrong"][0]["file"], "sample 0");
  EXPECT_EQ(json["most_wrong"][1]["file"], "sample 1");
}

TEST(EvaluationDetailLines, NameEachK) {
  train::PredictionCounts counts({.classes = 3, .top_k = {1, 2}, .calibration_bins = 4});
  counts.add(at::tensor({3.0, 2.0, 1.0, 3.0, 2.0, 1.0}, at::kDouble).reshape({2, 3}), at::tensor({0, 1}, at::kLong));
  const std::vector<std::string> lines = evaluation_detail_lines(counts);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], "Accuracy @ 1 = 0.5000 Accuracy @ 2 = 1.0000");
  // Softmax of 3, 2, 1: 0.6652 is the confidence of both, of which one is right.
  EXPECT_EQ(lines[1], "Expected calibration error: 0.1652 (4 bins)");
  train::PredictionCounts none({.classes = 3, .calibration_bins = 4});
  EXPECT_EQ(evaluation_detail_lines(none).size(), 1U);
}

}  // namespace
}  // namespace trainyard::frontends::evaluation_files_test
