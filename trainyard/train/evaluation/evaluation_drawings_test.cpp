// Where the drawings of an evaluation have their cells, bars and pixels.
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/base64.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/image/image.h"
#include "trainyard/train/evaluation/evaluation_report.h"

namespace trainyard::train::evaluation_drawings_test {
namespace {

using ::testing::HasSubstr, ::testing::Not;

void add(PredictionCounts& counts, int64_t label, int64_t predicted) {
  const at::Tensor row = at::zeros({1, counts.options().classes});
  row[0][predicted] = 5.0;
  counts.add(row, at::tensor(std::vector<int64_t>{label}));
}

size_t count_of(const std::string& svg, const std::string& text) {
  size_t found = 0;
  for (size_t at = svg.find(text); at != std::string::npos; at = svg.find(text, at + 1)) ++found;
  return found;
}

// Two cats, one of which is taken for a dog, and a dog. Cells of 34 pixels begin at (200, 216).
TEST(ConfusionDrawing, CellsNamesAndCountsHaveTheirPlaces) {
  PredictionCounts counts({.classes = 2});
  add(counts, 0, 0);
  add(counts, 0, 1);
  add(counts, 1, 1);
  const std::string svg = confusion_svg({.counts = counts, .names = {"cat", "dog"}});
  for (const char* part : {"width=\"420\" height=\"304\" viewBox=\"0 0 420 304\"",
                           "<text x=\"200\" y=\"60\" class=\"axis\">predicted</text>",
                           "<text x=\"190\" y=\"208\" class=\"axis\" text-anchor=\"end\">true class</text>",
                           "<text x=\"190.0\" y=\"237.0\" text-anchor=\"end\">cat</text>",
                           "<text x=\"190.0\" y=\"271.0\" text-anchor=\"end\">dog</text>",
                           "<text transform=\"translate(219.0 208.0) rotate(-60)\">cat</text>",
                           "<text transform=\"translate(253.0 208.0) rotate(-60)\">dog</text>",
                           "<rect x=\"234.0\" y=\"216.0\" width=\"34\" height=\"34\" fill=\"#84a4cb\"",
                           "<rect x=\"200.0\" y=\"250.0\" width=\"34\" height=\"34\" fill=\"#ffffff\"",
                           "<rect x=\"234.0\" y=\"250.0\" width=\"34\" height=\"34\" fill=\"#084896\"",
                           "<text x=\"251.0\" y=\"237.0\" class=\"small\" text-anchor=\"middle\">1</text>",
                           "<text x=\"251.0\" y=\"271.0\" class=\"small light\" text-anchor=\"middle\">1</text>"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  EXPECT_EQ(count_of(svg, "class=\"small"), 3U) << "a cell without images has no number";
}

TEST(ConfusionDrawing, UpToThirtyClassesHaveNumbersAndUpToSixtyHaveNames) {
  const auto drawn = [](int64_t classes) {
    PredictionCounts counts({.classes = classes});
    add(counts, classes - 1, 0);
    return confusion_svg({.counts = counts});
  };
  EXPECT_EQ(count_of(drawn(30), "class=\"small light\""), 1U);
  EXPECT_THAT(drawn(30), HasSubstr("width=\"34\" height=\"34\""));
  const std::string without_numbers = drawn(31);
  EXPECT_EQ(count_of(without_numbers, "class=\"small"), 0U);
  EXPECT_THAT(without_numbers, HasSubstr("<rect x=\"200.0\" y=\"636.0\" width=\"14\" height=\"14\" fill=\"#084896\""));
  EXPECT_THAT(without_numbers, HasSubstr("width=\"744\" height=\"670\""));
  EXPECT_THAT(drawn(60), Not(HasSubstr("<image")));
  EXPECT_EQ(count_of(drawn(60), "text-anchor=\"end\">59</text>"), 1U);
  EXPECT_THAT(drawn(61), HasSubstr("<image"));
}

// Characters are counted and not bytes.
TEST(ConfusionDrawing, NamesAreCutBehindTwentyFourCharacters) {
  PredictionCounts counts({.classes = 3});
  std::string umlauts;
  for (int i = 0; i < 24; ++i) umlauts += "\xc3\xa4";
  const std::vector<std::string> names = {std::string(24, 'a'), std::string(25, 'b'), umlauts};
  const std::string svg = confusion_svg({.counts = counts, .names = names});
  EXPECT_THAT(svg, HasSubstr(">" + std::string(24, 'a') + "</text>"));
  EXPECT_THAT(svg, HasSubstr(">" + std::string(24, 'b') + "...</text>"));
  EXPECT_THAT(svg, HasSubstr(">" + umlauts + "</text>"));
}

// Of four images of class 5 one is taken for class 7: the root of a quarter is a half, that of three quarters 0.87.
TEST(ConfusionDrawing, APixelIsTheRootOfItsShare) {
  constexpr int kClasses = 61;
  PredictionCounts counts({.classes = kClasses});
  add(counts, 60, 3);
  add(counts, 5, 7);
  for (int i = 0; i < 3; ++i) add(counts, 5, 5);
  data::Image image{.height = kClasses, .width = kClasses};
  image.pixels.assign(size_t{3} * kClasses * kClasses, uint8_t{255});
  const auto paint = [&](size_t row, size_t column, std::initializer_list<uint8_t> colour) {
    size_t place = 3 * (row * kClasses + column);
    for (const uint8_t value : colour) image.pixels[place++] = value;
  };
  paint(60, 3, {8, 72, 150});
  paint(5, 7, {132, 164, 203});
  paint(5, 5, {41, 97, 164});
  const std::string svg = confusion_svg({.counts = counts});
  EXPECT_NE(svg.find("base64," + core::base64_text(data::encode_png(image)) + "\""), std::string::npos);
  for (const char* part :
       {"<title>Confusion of 5 images, 3 right</title>",
        "<text x=\"40\" y=\"58\" class=\"axis\">predicted: outputs 0 to 60, from left to right; darker: the root of "
        "the share of the class's images</text>",
        "<text transform=\"translate(28 430) rotate(-90)\" class=\"axis\" text-anchor=\"middle\">true class, from top "
        "to bottom</text>",
        "<image x=\"40\" y=\"70\" width=\"720\" height=\"720\"",
        "<rect x=\"40\" y=\"70\" width=\"720\" height=\"720\" class=\"line\"/>"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  EXPECT_THAT(svg, HasSubstr("width=\"784\" height=\"814\""));
}

// Four bins of 80 pixels each: an image of confidence 1/2 that is right, and two of confidence 1, one of them right.
TEST(CalibrationDrawing, BarsHaveTheirPlaces) {
  PredictionCounts counts({.classes = 2, .calibration_bins = 4});
  const at::Tensor sure = at::tensor({200.0F, 0.0F}).reshape({1, 2});
  counts.add(at::zeros({1, 2}), at::tensor(std::vector<int64_t>{0}));
  for (const int64_t label : {0, 1}) counts.add(sure, at::tensor(std::vector<int64_t>{label}));
  const std::string svg = calibration_svg({.counts = counts});
  for (const char* part :
       {"width=\"414\" height=\"552\"", "Expected calibration error 0.5000",
        // Accuracy, its distance to the confidence, and the images of the second bin.
        "<rect x=\"150.50\" y=\"56.00\" width=\"79.00\" height=\"320.00\" fill=\"#1f5fbf\">",
        "<title>1 images, accuracy 1.0000, confidence 0.5000</title>",
        "<rect x=\"150.50\" y=\"56.00\" width=\"79.00\" height=\"160.00\" fill=\"#d9650b\"",
        "<rect x=\"150.50\" y=\"455.00\" width=\"79.00\" height=\"45.00\" fill=\"#888\"",
        // The same of the last bin.
        "<rect x=\"310.50\" y=\"216.00\" width=\"79.00\" height=\"160.00\" fill=\"#1f5fbf\">",
        "<title>2 images, accuracy 0.5000, confidence 1.0000</title>",
        "<rect x=\"310.50\" y=\"56.00\" width=\"79.00\" height=\"160.00\" fill=\"#d9650b\"",
        "<rect x=\"310.50\" y=\"410.00\" width=\"79.00\" height=\"90.00\" fill=\"#888\"",
        // Ticks, the diagonal, the frame and the base of the histogram.
        "<text x=\"62\" y=\"316.0\" text-anchor=\"end\">0.2</text>",
        "<text x=\"134.0\" y=\"518.0\" text-anchor=\"middle\">0.2</text>", "<path d=\"M70 376L390 56\"",
        "<rect x=\"70\" y=\"56\" width=\"320\" height=\"320\" class=\"line\"/>", "<path d=\"M70 500h320\"",
        "<text x=\"62\" y=\"380.0\" text-anchor=\"end\">0.0</text>",
        "<text x=\"62\" y=\"60.0\" text-anchor=\"end\">1.0</text>",
        "<text x=\"70.0\" y=\"518.0\" text-anchor=\"middle\">0.0</text>",
        "<text x=\"390.0\" y=\"518.0\" text-anchor=\"middle\">1.0</text>",
        // What the axes are.
        "<text transform=\"translate(20 216) rotate(-90)\" class=\"axis\" text-anchor=\"middle\">accuracy (orange: "
        "distance to confidence)</text>",
        "<text transform=\"translate(20 455) rotate(-90)\" class=\"axis\" text-anchor=\"middle\">images</text>",
        "<text x=\"230\" y=\"538\" class=\"axis\" text-anchor=\"middle\">confidence</text>",
        "<text x=\"16\" y=\"28\" class=\"title\">Expected calibration error 0.5000</text>"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  EXPECT_EQ(count_of(svg, "<path d="), 2U);
  EXPECT_EQ(count_of(svg, "text-anchor=\"end\""), 6U) << "ticks from 0 to 1";
  EXPECT_EQ(count_of(svg, "text-anchor=\"middle\""), 6U + 3U) << "ticks and what the axes are";
  EXPECT_EQ(count_of(svg, "fill=\"#888\""), 2U) << "empty bins have no bars";
}

TEST(CalibrationDrawing, ABinOfOneImageIsTheHighestWhereNoneHasMore) {
  PredictionCounts counts({.classes = 2, .calibration_bins = 4});
  counts.add(at::zeros({1, 2}), at::tensor(std::vector<int64_t>{0}));
  const std::string svg = calibration_svg({.counts = counts});
  EXPECT_THAT(svg, HasSubstr("<rect x=\"150.50\" y=\"410.00\" width=\"79.00\" height=\"90.00\" fill=\"#888\""));
  EXPECT_EQ(count_of(svg, "fill=\"#888\""), 1U);
}

}  // namespace
}  // namespace trainyard::train::evaluation_drawings_test
