#include "trainyard/cli/report/search_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainyard/cli/testing/run_folder.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::cli::search_record_test {
namespace {

using ::testing::ElementsAre, ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

Json states(const Json& record) {
  Json list = Json::array();
  for (const Json& trial : record["trials"]) list.push_back(trial["state"]);
  return list;
}

TEST(CheckedSearch, HoldsWhatTheRecordSays) {
  std::vector<std::string> problems;
  const Json record = checked_search(search_record_of(), problems);
  EXPECT_THAT(problems, IsEmpty());
  EXPECT_EQ(record["metric"], "loss");
  EXPECT_EQ(record["goal"], "lowest");
  EXPECT_EQ(record["levels"], (Json{1.0, 2.0}));
  EXPECT_EQ(record["ranges"],
            (Json{{{"flag", "init_learning_rate"}, {"scale", "logarithmic"}, {"choices", Json::array()}},
                  {{"flag", "optimizer"}, {"scale", "choice"}, {"choices", {"adam", "sgd"}}}}));
  EXPECT_EQ(states(record), (Json{"finished", "stopped", "failed", "unfinished"}));
  EXPECT_EQ(record["trials"][0]["results"], (Json{{1.0, 0.75, 10.0, 1.5}, {2.0, 0.5, 20.0, 1.25}}));
  EXPECT_EQ(record["trials"][0]["values"], (Json{"0.1", "sgd"}));
  EXPECT_EQ(record["trials"][0]["directory"], "trial-000");
  EXPECT_EQ(record["trials"][2]["reason"], "the loss is not finite");
  EXPECT_EQ(record["trials"][1]["reason"], "");
  EXPECT_EQ(record["left_out"], 0);
  for (int number = 0; number < 4; ++number) EXPECT_EQ(record["trials"][static_cast<size_t>(number)]["number"], number);
}

TEST(CheckedSearch, WhatIsNoTrialIsLeftOutAndCounted) {
  Json file = search_record_of();
  file["trials"].push_back(3);
  file["trials"].push_back({{"number", -1}, {"flags", Json::object()}});
  file["trials"].push_back({{"number", 9}});
  file["trials"][1]["flags"]["optimizer"] = {1, 2};
  file["trials"][1]["results"][0]["value"] = "nan";
  file["ranges"].push_back("x");
  std::vector<std::string> problems;
  const Json record = checked_search(file, problems);
  EXPECT_THAT(problems, ElementsAre("3 entries are no trials; they are left out"));
  EXPECT_EQ(states(record), (Json{"finished", "unfinished", "failed", "unfinished"}))
      << "a result that is no number is none";
  EXPECT_EQ(record["trials"][1]["values"], (Json{"0.2", ""}));
  EXPECT_EQ(record["ranges"].size(), 2U);
  for (const Json& other : {Json(), Json(3), Json::array(), Json::object(), Json{{"kind", 3}}, Json{{"kind", "x"}}}) {
    problems.clear();
    EXPECT_EQ(checked_search(other, problems), (Json{{"metric", ""},
                                                     {"goal", "highest"},
                                                     {"levels", Json::array()},
                                                     {"ranges", Json::array()},
                                                     {"left_out", 0},
                                                     {"trials", Json::array()}}));
    EXPECT_THAT(problems, ElementsAre("it is no record of a search")) << other;
  }
}

TEST(CheckedSearch, ListsAndTextsHaveALimit) {
  Json file = search_record_of();
  const Json trial = file["trials"][2];
  for (int i = 0; i < 3000; ++i) file["trials"].push_back(trial);
  file["trials"][2]["failure"] = std::string(100'000, 'x');
  for (int i = 0; i < 1000; ++i) {
    file["ranges"].push_back(file["ranges"][1]);
    file["levels"].push_back(3);
    file["ranges"][1]["choices"].push_back("x");
    file["trials"][0]["results"].push_back(file["trials"][0]["results"][0]);
  }
  std::vector<std::string> problems;
  const Json record = checked_search(file, problems);
  EXPECT_EQ(record["trials"].size(), 2000U);
  EXPECT_EQ(record["left_out"], 1004);
  EXPECT_EQ(record["ranges"].size(), 64U);
  EXPECT_EQ(record["levels"].size(), 64U);
  EXPECT_EQ(record["ranges"][1]["choices"].size(), 200U);
  EXPECT_EQ(record["trials"][0]["results"].size(), 64U);
  EXPECT_EQ(record["trials"][2]["reason"].get<std::string>().size(), 300U);
}

TEST(ReadReportSearch, DamagedFilesAreNamedAndPipesAreNotRead) {
  const core::TempDir temp;
  const std::string path = temp.file("tune.json");
  EXPECT_FALSE(read_report_search(path));
  for (const std::string& text :
       {std::string(), std::string("{\"kind\":"), std::string("\xff"), std::string(300'000, '[')}) {
    core::local_file_system().write_file_atomically(path, text);
    const auto search = read_report_search(path);
    ASSERT_TRUE(search);
    EXPECT_THAT(search->problems, ElementsAre("tune.json: it is no record of a search"));
  }
  core::local_file_system().write_file_atomically(path, search_record_of().dump());
  const auto search = read_report_search(path);
  EXPECT_EQ(search->directory, temp.path());
  EXPECT_THAT(search->problems, IsEmpty());
  EXPECT_EQ(search->record["trials"].size(), 4U);
  ASSERT_EQ(::unlink(path.c_str()), 0);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(read_report_search(path));
}

}  // namespace
}  // namespace trainyard::cli::search_record_test
