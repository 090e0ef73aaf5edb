// Scalars, histograms, images and texts in TensorBoard's files.
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png.h"
#include "trainyard/formats/logs/event_file.h"
#include "trainyard/train/monitors/monitors.h"

namespace trainyard::train::tensorboard_kinds_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two rows of two pixels: red, green; blue, white. [2, 2, 3] uint8.
at::Tensor four_pixels() {
  return at::tensor({255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255}, at::kByte).reshape({2, 2, 3});
}

std::map<std::string, formats::SummaryValue> values_in(const std::string& directory) {
  std::map<std::string, formats::SummaryValue> values;
  for (const std::string& name : core::local_file_system().list(directory)) {
    const auto file = core::local_file_system().open_read(core::join_path(directory, name));
    formats::EventFileReader reader(*file);
    while (const auto event = reader.next()) {
      for (const auto& value : event->values) values[value.tag] = value;
    }
  }
  return values;
}

std::vector<int> pixels_of(const formats::SummaryValue& value) {
  const auto& image = std::get<formats::EncodedImage>(value.value);
  const data::Image decoded = data::decode_png(std::as_bytes(std::span(image.data.data(), image.data.size()))).value();
  EXPECT_EQ(decoded.height, image.height);
  EXPECT_EQ(decoded.width, image.width);
  return {decoded.pixels.begin(), decoded.pixels.end()};
}

// tests/tensorboard_reads_monitors.py, which sets the folder, opens the file with TensorBoard's own reader.
TEST(TensorBoardMonitor, WritesAllFourKindsForTensorBoard) {
  const core::TempDir temporary;
  const char* given = std::getenv("TRAINYARD_TENSORBOARD_DIR");
  const std::string folder = given != nullptr ? given : temporary.path();
  MonitorSet monitors;
  monitors.add(std::make_unique<TensorBoardMonitor>(folder, 0));
  monitors.write({.global_step = 7, .wall_time = 1700000000, .phase = "train", .values = {{"loss", 2.5}}});
  monitors.write({.global_step = 7, .wall_time = 1700000000, .phase = "val", .values = {{"top_1_accuracy", 0.5}}});
  monitors.write_histograms({.global_step = 7,
                             .wall_time = 1700000000,
                             .values = {{"weights", formats::make_histogram(std::vector<float>{-1, 0.5, 2})}}});
  const at::Tensor batch = four_pixels().permute({2, 0, 1}).unsqueeze(0).expand({2, 3, 2, 2});
  monitors.write_images({.global_step = 7,
                         .wall_time = 1700000000,
                         .values = {{"one", four_pixels()}, {"batch", batch.to(at::kFloat).div(255)}}});
  monitors.write_texts(
      {.global_step = 7, .wall_time = 1700000000, .values = {{"note", "a **bold** word, für \xE2\x88\x9E"}}});
  monitors.close();
  if (given != nullptr) return;
  const auto values = values_in(folder);
  EXPECT_EQ(std::get<float>(values.at("loss").value), 2.5F);
  EXPECT_EQ(std::get<float>(values.at("val/top_1_accuracy").value), 0.5F) << "only \"eval\" has other names";
  EXPECT_EQ(std::get<formats::Histogram>(values.at("weights").value).count, 3);
  const auto expected = ElementsAre(255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255);
  EXPECT_THAT(pixels_of(values.at("one")), expected);
  EXPECT_THAT(pixels_of(values.at("batch/image/0")), expected);
  EXPECT_THAT(pixels_of(values.at("batch/image/1")), expected);
  EXPECT_EQ(std::get<formats::SummaryText>(values.at("note").value).markdown, "a **bold** word, für \xE2\x88\x9E");
}

TEST(TensorBoardMonitor, RoundsAndCutsFloats) {
  const core::TempDir directory;
  TensorBoardMonitor monitor(directory.path(), 0);
  const float infinity = std::numeric_limits<float>::infinity();
  const at::Tensor image =
      at::tensor({0.5F, -1.0F, 2.0F, std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}).reshape({1, 2, 3});
  monitor.write_images({.values = {{"x", image}}});
  monitor.close();
  EXPECT_THAT(pixels_of(values_in(directory.path()).at("x")), ElementsAre(128, 0, 255, 0, 255, 0));
}

TEST(MonitorSet, RefusesImagesOfOtherForms) {
  MonitorSet monitors;
  for (const at::Tensor& image : {at::zeros({4, 4}), at::zeros({3, 4, 4}), at::zeros({2, 1, 4, 4}),
                                  at::zeros({4, 4, 3}, at::kLong), at::zeros({0, 3, 4, 4})}) {
    EXPECT_THAT(core::message_of([&] {
                  monitors.write_images({.values = {{"x", image}}});
                }),
                HasSubstr("a monitor's image is of another form: x"));
  }
}

TEST(MonitorSet, GivesImagesAndTextsToThoseThatTakeThem) {
  const core::TempDir directory;
  MonitorSet monitors;
  monitors.add(std::make_unique<JsonLinesMonitor>(directory.file("metrics.jsonl")));
  monitors.write_images({.values = {{"x", four_pixels()}}});
  monitors.write_texts({.values = {{"x", "text"}}});
  monitors.close();
  EXPECT_EQ(core::local_file_system().read_file(directory.file("metrics.jsonl")), "");
}

// A row of two pixels, alone and as a batch.
TEST(TensorBoardMonitor, ImagesHaveTheirHeightAndWidth) {
  const core::TempDir directory;
  TensorBoardMonitor monitor(directory.path(), 0);
  const at::Tensor row = at::tensor({10, 20, 30, 40, 50, 60}, at::kByte).reshape({1, 2, 3});
  monitor.write_images({.values = {{"one", row}, {"batch", row.permute({2, 0, 1}).unsqueeze(0)}}});
  monitor.close();
  const auto values = values_in(directory.path());
  for (const char* tag : {"one", "batch/image/0"}) {
    const auto& image = std::get<formats::EncodedImage>(values.at(tag).value);
    EXPECT_EQ(image.height, 1) << tag;
    EXPECT_EQ(image.width, 2) << tag;
    EXPECT_EQ(image.channels, 3) << tag;
    EXPECT_THAT(pixels_of(values.at(tag)), ElementsAre(10, 20, 30, 40, 50, 60)) << tag;
  }
}

TEST(TensorBoardMonitor, WhatIsFlushedIsInTheFile) {
  const core::TempDir directory;
  TensorBoardMonitor monitor(directory.path(), 0);
  monitor.write({.global_step = 3, .wall_time = 1700000000, .phase = "val", .values = {{"loss", 2.5}}});
  monitor.flush();
  EXPECT_EQ(std::get<float>(values_in(directory.path()).at("val/loss").value), 2.5F);
  monitor.close();
  EXPECT_NO_THROW(monitor.flush()) << "nothing is open";
}

}  // namespace
}  // namespace trainyard::train::tensorboard_kinds_test
