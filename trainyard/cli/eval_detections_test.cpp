// `trainyard eval-detections`.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::cli::eval_detections_test {
namespace {

class EvalDetections : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& content) const {
    core::local_file_system().write_file_atomically(temp_.file(name), content);
    return temp_.file(name);
  }
  const core::TempDir temp_;
  const std::string truth_ =
      file("truth.json", R"({"images": [{"id": 7, "file_name": "a.jpg", "width": 64, "height": 48}],
    "categories": [{"id": 3, "name": "car"}], "annotations": [{"id": 1, "image_id": 7, "category_id": 3,
    "bbox": [4, 4, 40, 40], "area": 1500, "iscrowd": 0}]})");
};

TEST_F(EvalDetections, PrintsTwelveLinesAndWritesNumbers) {
  const std::string detections = file("detections.json", R"([
    {"image_id": 7, "category_id": 3, "bbox": [50, 4, 9, 40], "score": 0.75},
    {"image_id": 7, "category_id": 3, "bbox": [4, 4, 40, 40], "score": 0.5}])");
  const std::string output = temp_.file("numbers.json");
  const CommandResult result = run_command({"eval-detections", truth_, detections, "--output=" + output});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(count_lines(result.out, ""), 12);
  EXPECT_EQ(
      count_lines(result.out,
                  "^ Average Precision  \\(AP\\) @\\[ IoU=0.50:0.95 \\| area=   all \\| maxDets=100 \\] = 0.500$"),
      1)
      << result.out;
  const std::string written = core::local_file_system().read_file(output);
  EXPECT_EQ(count_lines(written, "^  \"AP\": "), 1) << written;
  EXPECT_EQ(count_lines(written, "^  \"[A-Za-z0-9]+\": [0-9.e+-]+,?$"), 12) << "two blanks in front: " << written;
  const auto numbers = nlohmann::json::parse(written);
  EXPECT_EQ(numbers.size(), 12U);
  EXPECT_NEAR(numbers["AP50"].get<double>(), 0.5, 1e-12);
  EXPECT_EQ(numbers["APs"], -1.0);
  EXPECT_EQ(numbers["ARmax1"], 0.0);
  EXPECT_EQ(numbers["ARmax10"], 1.0);
}

TEST_F(EvalDetections, RefusesWrongArgumentsAndFiles) {
  const std::string detections = file("detections.json", "[]");
  EXPECT_EQ(run_command({"eval-detections", truth_, detections}).code, kSuccess) << "nothing may be found";
  EXPECT_EQ(run_command({"eval-detections", truth_}).code, kUsage);
  EXPECT_EQ(run_command({"eval-detections", truth_, detections, "--output=" + temp_.path()}).code, kUsage);
  EXPECT_EQ(run_command({"eval-detections", truth_, temp_.file("none.json")}).code, kFailure);
  EXPECT_EQ(run_command({"eval-detections", detections, detections}).code, kFailure);
  const std::string other =
      file("other.json", R"([{"image_id": 8, "category_id": 3, "bbox": [50, 4, 9, 40], "score": 0.75}])");
  const CommandResult refused = run_command({"eval-detections", truth_, other});
  EXPECT_NE(refused.code, kSuccess);
  EXPECT_EQ(count_lines(refused.err, "detection 0 is of image 8"), 1) << refused.err;
}

}  // namespace
}  // namespace trainyard::cli::eval_detections_test
