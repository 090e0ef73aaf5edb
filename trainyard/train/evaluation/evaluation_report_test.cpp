#include "trainyard/train/evaluation/evaluation_report.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace trainyard::train::evaluation_report_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::Not, ::testing::StartsWith;

// Names that a table, a drawing and JSON each take for something else; the third class has none.
const std::vector<std::string> kHostile = {"a,\"b\"\nc", "<script>alert(1)</script>", "", "caf\xe9 \x01"};

void add(PredictionCounts& counts, int64_t label, int64_t predicted, float logit, int64_t sample) {
  const at::Tensor row = at::zeros({1, counts.options().classes});
  row[0][predicted] = logit;
  counts.add(row, at::tensor(std::vector<int64_t>{label}), std::vector<int64_t>{sample});
}

PredictionCounts some_counts() {
  PredictionCounts counts({.classes = 4, .top_k = {1}, .calibration_bins = 4});
  add(counts, 0, 0, 2, 0);
  add(counts, 0, 1, 3, 1);
  add(counts, 1, 1, 1, 2);
  add(counts, 3, 0, 4, 3);
  return counts;
}

TEST(EvaluationReport, JsonHasItsFields) {
  const PredictionCounts counts = some_counts();
  const std::string text = evaluation_json({.counts = counts,
                                            .names = kHostile,
                                            .checkpoint = "run/model.ckpt-7",
                                            .global_step = 7,
                                            .loss = 1.5,
                                            .top_1 = 0.5,
                                            .top_5 = 1,
                                            .most_wrong = {{"d/x.jpg", "/9j/"}, {"y.jpg", ""}}});
  const nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json.at("schema"), 1);
  EXPECT_EQ(json.at("images"), 4);
  EXPECT_EQ(json.at("not_finite"), 0);
  EXPECT_EQ(json.at("global_step"), 7);
  EXPECT_EQ(json.at("checkpoint"), "run/model.ckpt-7");
  EXPECT_EQ(json.at("top_1"), 0.5);
  EXPECT_EQ(json.at("top_5"), 1.0);
  EXPECT_EQ(json.at("loss"), 1.5);
  EXPECT_EQ(json.at("top_k").at("top_1_accuracy"), 0.5);
  EXPECT_EQ(json.at("classes"), (nlohmann::json{kHostile[0], kHostile[1], "2", "caf\xef\xbf\xbd \x01"}));
  EXPECT_EQ(json.at("confusion"), (nlohmann::json{{1, 1, 0, 0}, {0, 1, 0, 0}, {0, 0, 0, 0}, {1, 0, 0, 0}}));
  EXPECT_EQ(json.at("per_class").size(), 4U);
  EXPECT_EQ(json.at("per_class")[0],
            (nlohmann::json{{"name", kHostile[0]}, {"images", 2}, {"precision", 0.5}, {"recall", 0.5}, {"f1", 0.5}}));
  EXPECT_EQ(json.at("per_class")[2].at("precision"), 0.0);
  EXPECT_EQ(json.at("calibration").at("bins").size(), 4U);
  EXPECT_EQ(json.at("calibration").at("ece"), counts.calibration_error());
  EXPECT_EQ(json.at("calibration").at("bins")[3].at("images"), counts.calibration()[3].images);
  const nlohmann::json& wrong = json.at("most_wrong");
  ASSERT_EQ(wrong.size(), 2U);
  EXPECT_EQ(wrong[0].at("file"), "d/x.jpg");
  EXPECT_EQ(wrong[0].at("image"), "/9j/");
  EXPECT_EQ(wrong[0].at("predicted"), kHostile[0]);
  EXPECT_EQ(wrong[1].at("true"), kHostile[0]);
  EXPECT_GT(wrong[0].at("confidence"), wrong[1].at("confidence"));
}

TEST(EvaluationReport, TablesQuoteNamesAsRfc4180Says) {
  PredictionCounts counts = some_counts();
  EXPECT_EQ(confusion_csv({.counts = counts, .names = kHostile}),
            "label,\"a,\"\"b\"\"\nc\",<script>alert(1)</script>,2,caf\xe9 \x01\r\n"
            "\"a,\"\"b\"\"\nc\",1,1,0,0\r\n"
            "<script>alert(1)</script>,0,1,0,0\r\n"
            "2,0,0,0,0\r\n"
            "caf\xe9 \x01,1,0,0,0\r\n");
  add(counts, 2, 1, std::numeric_limits<float>::infinity(), 4);
  EXPECT_THAT(confusion_csv({.counts = counts}),
              AllOf(HasSubstr("label,0,1,2,3,not finite\r\n"), HasSubstr("\r\n2,0,0,0,0,1\r\n"),
                    HasSubstr("\r\n1,0,1,0,0,0\r\n")));
  EXPECT_THAT(per_class_csv({.counts = counts, .names = {"cat"}}),
              AllOf(StartsWith("class,images,predicted,right,precision,recall,f1\r\ncat,2,2,1,0.5,0.5,0.5\r\n"),
                    HasSubstr("\r\n1,1,2,1,0.5,1,0.66666")));
}

// Nothing of a name is markup, and no byte is one that XML forbids.
void expect_harmless(const std::string& svg) {
  EXPECT_THAT(svg, AllOf(StartsWith("<svg xmlns="), HasSubstr("</svg>"), Not(HasSubstr("<script")),
                         Not(HasSubstr("\xe9")), Not(HasSubstr("\x01"))));
}

TEST(EvaluationReport, DrawingsEscapeNames) {
  const PredictionCounts counts = some_counts();
  const std::string svg = confusion_svg({.counts = counts, .names = kHostile});
  expect_harmless(svg);
  EXPECT_THAT(svg, AllOf(HasSubstr("&lt;script>alert(1)&lt;/script..."), HasSubstr("a,&quot;b&quot;\\nc"),
                         HasSubstr("Confusion of 4 images, 2 right")));
  expect_harmless(calibration_svg({.counts = counts, .names = kHostile}));
}

// Rows are shares of their class: all of class 1, half of class 0.
TEST(EvaluationReport, CellsAreDarkByTheirShare) {
  const std::string svg = confusion_svg({.counts = some_counts()});
  const auto count = [&](const std::string& text) {
    size_t found = 0;
    for (size_t at = svg.find(text); at != std::string::npos; at = svg.find(text, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("fill=\"#084896\""), 2U) << "class 1, and class 3, all of which is taken for class 0";
  EXPECT_EQ(count("fill=\"#84a4cb\""), 2U) << "the halves of class 0";
  EXPECT_EQ(count("fill=\"#ffffff\""), 12U);
}

TEST(EvaluationReport, ManyClassesAreAPictureAndMoreAreNoMatrix) {
  PredictionCounts many({.classes = 61});
  add(many, 60, 3, 5, 0);
  EXPECT_THAT(confusion_svg({.counts = many}),
              AllOf(HasSubstr("data:image/png;base64,iVBOR"), HasSubstr("outputs 0 to 60")));
  PredictionCounts more({.classes = 1025});
  add(more, 1000, 3, 5, 0);
  EXPECT_EQ(confusion_svg({.counts = more}), "");
  EXPECT_EQ(confusion_csv({.counts = more}), "");
  const nlohmann::json json = nlohmann::json::parse(evaluation_json({.counts = more}));
  EXPECT_EQ(json.at("confusion"), nlohmann::json::array());
  EXPECT_EQ(json.at("per_class").size(), 1025U);
}

TEST(EvaluationReport, OfNoImagesIsWhole) {
  const PredictionCounts none({.classes = 3});
  const nlohmann::json json = nlohmann::json::parse(evaluation_json({.counts = none}));
  EXPECT_EQ(json.at("images"), 0);
  EXPECT_EQ(json.at("calibration").at("ece"), 0.0);
  EXPECT_EQ(json.at("most_wrong"), nlohmann::json::array());
  expect_harmless(confusion_svg({.counts = none}));
  expect_harmless(calibration_svg({.counts = none}));
}

// No two of a class's ratios are equal, and neither are those of a bin.
TEST(EvaluationReport, JsonTellsItsRatiosAndClassesApart) {
  const PredictionCounts counts = some_counts();
  const nlohmann::json json = nlohmann::json::parse(evaluation_json(
      {.counts = counts, .names = {"ant", "bee", "cat", "dog"}, .most_wrong = {{.file = "d.jpg", .image = "/9j/"}}}));
  EXPECT_EQ(
      json.at("per_class")[1],
      (nlohmann::json{
          {"name", "bee"}, {"images", 1}, {"precision", 0.5}, {"recall", 1.0}, {"f1", counts.classes()[1].f1()}}));
  const nlohmann::json& bins = json.at("calibration").at("bins");
  EXPECT_EQ(bins[2].at("accuracy"), 1.0);
  EXPECT_NEAR(bins[2].at("confidence").get<double>(), 1 / (1 + 3 * std::exp(-2)), 1e-6);
  EXPECT_EQ(bins[3].at("accuracy"), 0.0);
  const nlohmann::json& wrong = json.at("most_wrong");
  ASSERT_EQ(wrong.size(), 2U);
  EXPECT_EQ(wrong[0].at("true"), "dog");
  EXPECT_EQ(wrong[0].at("predicted"), "ant");
  EXPECT_EQ(wrong[1].at("true"), "ant");
  EXPECT_EQ(wrong[1].at("predicted"), "bee");
  EXPECT_EQ(wrong[1].at("file"), "") << "its picture is not known";
}

}  // namespace
}  // namespace trainyard::train::evaluation_report_test
