#include "trainyard/cli/report/evaluation_file.h"

#include <gtest/gtest.h>

#include "trainyard/cli/testing/run_folder.h"

namespace trainyard::cli::evaluation_file_test {
namespace {

using Json = nlohmann::ordered_json;

TEST(EvaluationFile, BecomesWhatThePageReads) {
  Json file = evaluation_of(3);
  file["confusion"] = {{5, 0, 1}, {2, 7, 0}, {0, 0, 9}};
  file["global_step"] = 40;
  std::vector<std::string> problems;
  const Json taken = checked_evaluation(file, problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(taken["images"], 600);
  EXPECT_EQ(taken["top_1"], 0.7);
  EXPECT_EQ(taken["top_5"], 0.95);
  EXPECT_EQ(taken["step"], 40);
  EXPECT_EQ(taken["ece"], 0.05);
  EXPECT_EQ(taken["names"], (Json{"class 0", "class 1", "class 2"}));
  // Row, column, count: without zeros, largest first.
  EXPECT_EQ(taken["cells"], (Json{2, 2, 9, 1, 1, 7, 0, 0, 5, 1, 0, 2, 0, 2, 1}));
  EXPECT_EQ(taken["count"], (Json{60, 60, 60}));
  EXPECT_EQ(taken["precision"], (Json{0.8123, 0.8123, 0.8123}));
  EXPECT_EQ(taken["recall"], (Json{0.7, 0.7, 0.7}));
  EXPECT_EQ(taken["bins"], (Json::array({Json{0.55, 0.5, 100}})));
  ASSERT_EQ(taken["wrong"].size(), 2U);
  EXPECT_EQ(taken["wrong"][1]["file"], "photos/1.jpg");
  EXPECT_EQ(taken["wrong"][1]["true"], "class 0");
  EXPECT_EQ(taken["wrong"][1]["predicted"], "class 1");
  EXPECT_EQ(taken["wrong"][1]["confidence"], 0.99);
  EXPECT_EQ(taken["wrong"][0]["image"].get<std::string>().substr(0, 33), "data:image/png;base64,iVBORw0KGgo");
}

TEST(EvaluationFile, WhatIsWrongIsLeftOutAndNamed) {
  const auto taken_of = [](const auto& change) {
    Json file = evaluation_of(3);
    change(file);
    std::vector<std::string> problems;
    const Json taken = checked_evaluation(file, problems);
    return std::pair(taken, problems.size());
  };
  const auto version = taken_of([](Json& file) { file["schema"] = 2; });
  EXPECT_TRUE(version.first.is_null());
  EXPECT_EQ(version.second, 1U);
  for (const auto& damage : std::initializer_list<void (*)(Json&)>{
           [](Json& file) { file["confusion"][1].erase(0); }, [](Json& file) { file["confusion"].erase(0); },
           [](Json& file) { file["confusion"][1][1] = -1; }, [](Json& file) { file["confusion"][1][1] = 1.5; },
           [](Json& file) { file["confusion"][1][1] = "9"; }, [](Json& file) { file["confusion"][1] = 3; }}) {
    const auto [taken, problems] = taken_of(damage);
    EXPECT_FALSE(taken.contains("cells"));
    EXPECT_EQ(problems, 1U);
    EXPECT_EQ(taken["recall"].size(), 3U) << "the rest stays";
  }
  const auto absent = taken_of([](Json& file) {
    for (const char* name : {"confusion", "per_class", "calibration", "most_wrong"}) file.erase(name);
  });
  EXPECT_EQ(absent.second, 0U) << "an evaluation need not have them";
  EXPECT_FALSE(absent.first.contains("cells"));
  EXPECT_FALSE(absent.first.contains("recall"));
  EXPECT_EQ(absent.first["names"].size(), 3U);
  EXPECT_EQ(absent.first["wrong"], Json::array());
  const auto classes = taken_of([](Json& file) { file["per_class"].erase(0); });
  EXPECT_FALSE(classes.first.contains("precision"));
  EXPECT_EQ(classes.second, 1U);
  const auto numbers = taken_of([](Json& file) {
    file["top_1"] = 1.5;
    file["images"] = "many";
    file["calibration"] = 3;
    file["per_class"][0] = nullptr;
    file["most_wrong"] = {1, {{"confidence", -1}}};
  });
  EXPECT_TRUE(numbers.first["top_1"].is_null());
  EXPECT_TRUE(numbers.first["images"].is_null());
  EXPECT_FALSE(numbers.first.contains("bins"));
  EXPECT_TRUE(numbers.first["recall"][0].is_null());
  EXPECT_EQ(numbers.first["wrong"].size(), 1U);
}

TEST(EvaluationFile, OnlyBase64OfAPngOrJpegBecomesAnImage) {
  for (const auto& [data, kind] : std::initializer_list<std::pair<std::string, std::string>>{
           {"/9j/AAAA", "data:image/jpeg;base64,/9j/AAAA"},
           {"PHN2Zz4=", ""},                                    // an SVG, which may hold scripts
           {"iVBORw0KGgo\" onerror=\"alert(1)", ""},            // no base64
           {"iVBORw0KGgo" + std::string(1 << 20, 'A'), ""}}) {  // larger than 128 pixels need
    Json file = evaluation_of(2, 1);
    file["most_wrong"][0]["image"] = data;
    std::vector<std::string> problems;
    EXPECT_EQ(checked_evaluation(file, problems)["wrong"][0]["image"], kind);
  }
}

TEST(EvaluationFile, TextsListsAndImagesHaveALimit) {
  constexpr size_t kText = 300, kImage = size_t{1} << 17, kBins = 100, kWrong = 200;
  const std::string begin = "iVBORw0KGgo", address = "data:image/png;base64,";
  Json file = evaluation_of(2, kWrong + 1);
  file["classes"] = {std::string(kText, 'a') + "b", "class 1"};
  file["most_wrong"][0]["image"] = begin + std::string(kImage - begin.size(), 'A');
  file["most_wrong"][1]["image"] = begin + std::string(kImage - begin.size() + 1, 'A');
  file["most_wrong"][0]["file"] = std::string(kText + 1, 'f');
  const Json bin = file["calibration"]["bins"][0];
  for (size_t i = 0; i < kBins; ++i) file["calibration"]["bins"].push_back(bin);
  std::vector<std::string> problems;
  const Json taken = checked_evaluation(file, problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(taken["names"], (Json{std::string(kText, 'a'), "class 1"}));
  EXPECT_EQ(taken["bins"].size(), kBins);
  ASSERT_EQ(taken["wrong"].size(), kWrong);
  EXPECT_EQ(taken["wrong"][0]["file"], std::string(kText, 'f'));
  EXPECT_EQ(taken["wrong"][0]["image"].get<std::string>().size(), address.size() + kImage);
  EXPECT_EQ(taken["wrong"][1]["image"], "") << "one character more";
}

TEST(EvaluationFile, MoreClassesThanAPageShowsAreNamed) {
  Json file = evaluation_of(2);
  file["classes"] = Json(30'001U, "a class");
  std::vector<std::string> problems;
  const Json taken = checked_evaluation(file, problems);
  EXPECT_FALSE(taken.contains("names"));
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0], "evaluation.json names 30001 classes; a report shows at most 30000");
  EXPECT_EQ(problems[1],
            "evaluation.json: the confusion matrix is not one row and one column of counts for each class");
  file["classes"].erase(0);
  file["per_class"] = Json::array();
  file["confusion"] = Json::array();
  problems.clear();
  EXPECT_EQ(checked_evaluation(file, problems)["names"].size(), 30'000U);
  EXPECT_TRUE(problems.empty());
}

TEST(EvaluationFile, IsShortenedToTheLargestCellsAndFirstImages) {
  std::vector<std::string> problems;
  Json taken = checked_evaluation(evaluation_of(20, 10, 1000), problems);
  shorten_evaluation(taken, 50, 3400);
  EXPECT_EQ(taken["cells"].size(), 150U);
  EXPECT_EQ(taken["cells"][2], 69) << "the largest: that of the last class";
  EXPECT_EQ(taken["cells_left_out"], 350);
  EXPECT_EQ(taken["wrong"].size(), 3U);
  EXPECT_EQ(taken["wrong_left_out"], 7);
  // An image counts with 100 bytes more than its address has: 22 in front of the 11 and 1,000 of base64.
  for (const auto& [bytes, kept] : {std::pair{3398, 2U}, {3399, 3U}}) {
    Json images = checked_evaluation(evaluation_of(2, 10, 1000), problems);
    shorten_evaluation(images, 4, static_cast<size_t>(bytes));
    EXPECT_EQ(images["wrong"].size(), kept) << bytes;
    EXPECT_EQ(images["wrong_left_out"], 10 - kept);
    EXPECT_FALSE(images.contains("cells_left_out")) << "all four are there";
  }
  Json whole = checked_evaluation(evaluation_of(3), problems);
  const Json before = whole;
  shorten_evaluation(whole, 9, 10'000);
  EXPECT_EQ(whole, before);
}

}  // namespace
}  // namespace trainyard::cli::evaluation_file_test
