#include "trainyard/train/monitors/curve_svg.h"

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/golden.h"

namespace trainyard::train::curve_svg_test {
namespace {

TEST(CurveSvg, DrawsPanelsSideBySide) {
  const std::vector<CurvePanel> panels = {
      {"loss", {{"train", {0, 10, 20, 30}, {2.5, 1.5, 1.0, 0.9}}}},
      {"top-1 accuracy", {{"train", {10, 20}, {0.5, 0.7}}, {"validation", {30}, {0.6}}}}};
  EXPECT_TRUE(core::matches_golden(curve_svg("resnet20 on <shapes>", panels), "trainyard/train/testdata/curve.svg"));
}

TEST(CurveSvg, APanelBelowTheFirstTwoBeginsAnotherRow) {
  const std::vector<CurveSeries> series = {{"", {0, 1}, {1, 2}}};
  const auto height = [&](size_t count) {
    const std::string svg = curve_svg("t", std::vector<CurvePanel>(count, {"loss", series}));
    return std::stod(svg.substr(svg.find(" height=\"") + 9));
  };
  EXPECT_EQ(height(1), height(2));
  EXPECT_EQ(height(3), height(4));
  EXPECT_GE(height(3), height(2) + 260);
  // The axis of the third panel is in the first column, below that of the first.
  const std::string svg = curve_svg("t", {{"a", series}, {"b", series}, {"c", series}});
  EXPECT_NE(svg.find("<text x=\"56\" y=\"52\" class=\"panel\">a<"), std::string::npos) << svg;
  EXPECT_NE(svg.find("<text x=\"552\" y=\"52\" class=\"panel\">b<"), std::string::npos) << svg;
  EXPECT_NE(svg.find("<text x=\"56\" y=\"396\" class=\"panel\">c<"), std::string::npos) << svg;
}

TEST(CurveSvg, RatesAreCurvesOfTheTraining) {
  const auto panels =
      curve_panels("{\"global_step\":5,\"phase\":\"train\",\"learning_rate\":0.1,\"images_per_second\":80.5}\n");
  EXPECT_EQ(panels[2].series[0].y, std::vector<double>{0.1});
  EXPECT_EQ(panels[3].title, "images/s");
  EXPECT_EQ(panels[3].series[0].y, std::vector<double>{80.5});
}

TEST(CurveSvg, ADetectorsPrecisionIsAPanel) {
  const auto panels = curve_panels(
      "{\"global_step\":5,\"phase\":\"eval\",\"COCO/AP\":0.25,\"COCO/AP50\":0.5}\n"
      "{\"global_step\":9,\"phase\":\"eval\",\"COCO/AP\":0.5}\n");
  ASSERT_EQ(panels.back().title, "average precision");
  EXPECT_EQ(panels.back().series[0].x, (std::vector<double>{5, 9}));
  EXPECT_EQ(panels.back().series[0].y, (std::vector<double>{0.25, 0.5}));
  EXPECT_EQ(panels.back().series[1].name, "AP50");
  EXPECT_EQ(panels.back().series[1].y, std::vector<double>{0.5});
}

TEST(CurveSvg, LeavesOutWhatIsNotFinite) {
  const double nan = std::nan("");
  const std::string svg = curve_svg("t", {{"loss", {{"train", {0, 1, 2}, {1.0, nan, 2.0}}}}});
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_NE(svg.find("<polyline"), std::string::npos);
}

TEST(CurveSvg, NothingToDrawIsEmpty) {
  EXPECT_EQ(curve_svg("t", {}), "");
  EXPECT_EQ(curve_svg("t", {{"loss", {{"train", {1}, {std::nan("")}}}}}), "");
}

TEST(CurveSvg, AConstantSeriesHasAnAxis) {
  const std::string svg = curve_svg("t", {{"loss", {{"train", {5, 5}, {0.0, 0.0}}}}});
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(CurveSvg, ALogarithmicAxisHasPowersOfTen) {
  const std::string svg = curve_svg("t", {{.title = "loss",
                                           .series = {{"rate", {0, 1e-4, 1e-3, 1e-2}, {9.0, 1.0, 2.0, 3.0}, false}},
                                           .x_axes = {{"learning rate"}},
                                           .logarithmic = true}});
  for (const char* tick : {">0.0001<", ">0.001<", ">0.01<"}) EXPECT_NE(svg.find(tick), std::string::npos) << tick;
  EXPECT_EQ(svg.find("<polyline"), std::string::npos) << "single points";
  // The panel is 420 wide from 56 on: its middle is the middle power. A rate of 0 has no place.
  EXPECT_NE(svg.find("cx=\"56.0\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("cx=\"266.0\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("cx=\"476.0\""), std::string::npos) << svg;
  EXPECT_EQ(curve_svg("t", {{.title = "x", .series = {{"", {0, -1}, {1, 1}}}, .logarithmic = true}}), "");
}

TEST(CurveSvg, ReadsMetricsAndSkipsOtherLines) {
  const auto panels = curve_panels(
      "{\"global_step\":5,\"phase\":\"train\",\"total_loss\":2.5,\"top_1_accuracy\":0.25}\nnot json\n"
      "{\"global_step\":10,\"phase\":\"eval\",\"top_1_accuracy\":0.5,\"loss\":\"nan\"}\n[1]\n");
  ASSERT_EQ(panels.size(), 5u);
  EXPECT_EQ(panels[0].series[0].y, std::vector<double>{2.5});
  EXPECT_TRUE(panels[0].series[1].y.empty());
  EXPECT_EQ(panels[1].series[0].x, std::vector<double>{5});
  EXPECT_EQ(panels[1].series[1].y, std::vector<double>{0.5});
}

TEST(CurveSvg, UpToFortyMeasurementsAreShownAsPoints) {
  const auto circles = [](size_t points) {
    std::vector<double> values(points);
    std::iota(values.begin(), values.end(), 0.0);
    const std::vector<CurvePanel> panels = {{.title = "loss", .series = {{"train", values, values}}}};
    const std::string svg = curve_svg("t", panels);
    size_t count = 0;
    for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++count;
    return count;
  };
  EXPECT_EQ(circles(40), 40U);
  EXPECT_EQ(circles(41), 0U);
}

// Where two ticks are close compared with their numbers, rounding does not take the last one.
TEST(CurveSvg, BothEndsOfAnAxisFarFromZeroHaveTicks) {
  const std::vector<CurvePanel> panels = {{.title = "loss", .series = {{"train", {1e9, 1e9 + 40}, {0, 1}}}}};
  const std::string svg = curve_svg("t", panels);
  for (const char* place : {"56.0", "161.0", "266.0", "371.0", "476.0"}) {
    const std::string tick =
        std::string("<text x=\"") + place + "\" y=\"342.0\" class=\"tick\" text-anchor=\"middle\">1e+09</text>";
    EXPECT_NE(svg.find(tick), std::string::npos) << tick << "\n" << svg;
  }
}

// 10 steps are an epoch: its ticks are where those of its steps are, a row below them.
TEST(CurveSvg, ASecondAxisHasARowOfItsOwn) {
  const std::vector<CurvePanel> panels = {
      {.title = "loss", .series = {{"train", {0, 40}, {0, 1}}}, .x_axes = {{"step", 1}, {"epoch", 10}}}};
  const std::string svg = curve_svg("t", panels);
  for (const char* text : {"<text x=\"161.0\" y=\"342.0\" class=\"tick\" text-anchor=\"middle\">10</text>",
                           "<text x=\"161.0\" y=\"360.0\" class=\"tick\" text-anchor=\"middle\">1</text>",
                           "<text x=\"476.0\" y=\"360.0\" class=\"tick\" text-anchor=\"middle\">4</text>",
                           "<text x=\"40.0\" y=\"342.0\" class=\"tick\" text-anchor=\"end\">step</text>",
                           "<text x=\"40.0\" y=\"360.0\" class=\"tick\" text-anchor=\"end\">epoch</text>"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text << "\n" << svg;
  }
}

// Rates have one curve, whatever has written them.
TEST(CurveSvg, EachPhaseHasItsCurveWhereThereAreTwo) {
  const auto panels = curve_panels(
      "{\"global_step\":5,\"phase\":\"train\",\"loss\":1.5,\"top_1_accuracy\":0.25,\"learning_rate\":0.1}\n"
      "{\"global_step\":6,\"phase\":\"eval\",\"loss\":2.5,\"top_1_accuracy\":0.5,\"learning_rate\":0.2}\n");
  ASSERT_EQ(panels.size(), 5U);
  for (const size_t two : {size_t{0}, size_t{1}}) {
    ASSERT_EQ(panels[two].series.size(), 2U);
    EXPECT_EQ(panels[two].series[0].x, std::vector<double>{5});
    EXPECT_EQ(panels[two].series[1].x, std::vector<double>{6});
  }
  EXPECT_EQ(panels[0].series[1].y, std::vector<double>{2.5});
  EXPECT_EQ(panels[1].series[0].y, std::vector<double>{0.25});
  EXPECT_EQ(panels[2].series[0].x, (std::vector<double>{5, 6}));
  EXPECT_EQ(panels[2].series[0].y, (std::vector<double>{0.1, 0.2}));
}

}  // namespace
}  // namespace trainyard::train::curve_svg_test
