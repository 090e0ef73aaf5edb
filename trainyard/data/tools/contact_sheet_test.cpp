#include "trainyard/data/tools/contact_sheet.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/detection/drawn_boxes.h"
#include "trainyard/data/detection/ssd_transform.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::contact_sheet_test {
namespace {

// Flat gray images, twice as wide as high; sample i has the value 20 * i.
class GrayImages : public Dataset {
 public:
  int64_t size() const override { return 10; }
  int64_t label_count() const override { return 10; }
  core::Result<Record> read(int64_t index) const override {
    return Record{.bytes = encode_jpeg(flat_image(20, 40, static_cast<uint8_t>(20 * index))), .label = index};
  }
};

uint8_t pixel(const Image& image, int y, int x) {
  return image.pixels[3 * (static_cast<size_t>(y) * image.width + x)];
}

TEST(ContactSheet, ShowsOriginalAndInputSideBySide) {
  const GrayImages images;
  ContactSheetOptions options{.count = 6, .epoch = 3, .seed = 5};
  options.transform = {.height = 16, .width = 16, .distortions = false};
  for (const Normalization& normalization :
       {Normalization::symmetric(), Normalization::minus_mean(kImagenetChannelMeans),
        Normalization::standardized(kImagenetMean, kImagenetStandardDeviation)}) {
    options.transform.normalization = normalization;
    const auto transform = transforms().get("imagenet")(options.transform);
    const ContactSheet sheet = make_contact_sheet(images, *transform, options);
    // Cells of 40 x 20 and a margin of 4: two columns, three rows.
    ASSERT_EQ(sheet.image.width, 2 * 40 + 4);
    ASSERT_EQ(sheet.image.height, 3 * 20 + 4);
    const std::vector<int64_t> order = epoch_order(10, {}, 5, 3);
    ASSERT_EQ(sheet.cells.size(), 6U);
    for (int k = 0; k < 6; ++k) {
      const int top = 4 + k / 2 * 20, left = 4 + k % 2 * 40;
      EXPECT_EQ(sheet.cells[k].sample, order[k]);
      EXPECT_EQ(sheet.cells[k].label, order[k]);
      EXPECT_NEAR(pixel(sheet.image, top + 8, left + 8), 20 * order[k], 1) << "the original";
      EXPECT_NEAR(pixel(sheet.image, top + 8, left + 16 + 8), 20 * order[k], 1) << "what the model gets";
      EXPECT_EQ(pixel(sheet.image, top + 1, left + 8), 255) << "above an image that is wider than high";
    }
  }
  options.count = 11;
  const auto transform = transforms().get("imagenet")(options.transform);
  EXPECT_EQ(core::code_of([&] { make_contact_sheet(images, *transform, options); }), core::ErrorCode::kInvalidArgument);
}

// Twice as high as wide.
class PortraitImages : public Dataset {
 public:
  int64_t size() const override { return 2; }
  int64_t label_count() const override { return 2; }
  core::Result<Record> read(int64_t index) const override {
    return Record{.bytes = encode_jpeg(flat_image(40, 20, 50)), .label = index};
  }
};

TEST(ContactSheet, FieldsHaveTheShapeOfTheInput) {
  const PortraitImages images;
  ContactSheetOptions options{.count = 2};
  options.transform = {.height = 16, .width = 24, .distortions = false};
  const auto transform = transforms().get("imagenet")(options.transform);
  const ContactSheet sheet = make_contact_sheet(images, *transform, options);
  // Cells of 56 x 20 and a margin of 4: one column, two rows. The image is scaled to 8 x 16 in a field of 24 x 16.
  ASSERT_EQ(sheet.image.width, 56 + 4);
  ASSERT_EQ(sheet.image.height, 2 * 20 + 4);
  for (const int top : {4, 24}) {
    for (const int y : {top, top + 15}) {
      EXPECT_EQ(pixel(sheet.image, y, 4 + 7), 255) << "to the left of the original";
      EXPECT_NEAR(pixel(sheet.image, y, 4 + 8), 50, 1);
      EXPECT_NEAR(pixel(sheet.image, y, 4 + 15), 50, 1);
      EXPECT_EQ(pixel(sheet.image, y, 4 + 16), 255) << "to the right of it";
      EXPECT_NEAR(pixel(sheet.image, y, 4 + 24), 50, 1) << "what the model gets";
      EXPECT_NEAR(pixel(sheet.image, y, 4 + 47), 50, 1);
      EXPECT_EQ(pixel(sheet.image, y, 4 + 48), 255);
    }
  }
  options.count = 3;
  EXPECT_EQ(core::message_of([&] { make_contact_sheet(images, *transform, options); }),
            "number of samples to show is out of range: expected 1 to 2, got 3");
  options.count = 2;
  std::swap(options.transform.height, options.transform.width);
  EXPECT_EQ(core::message_of([&] { make_contact_sheet(images, *transform, options); }),
            "the transform makes images of another size: expected 24 x 16, got 16 x 24");
}

TEST(PngWriter, WritesWhatIsReadBack) {
  const Image image = noisy_image(7, 13);
  const Image read = decode_image(encode_png(image)).value();
  EXPECT_EQ(read.height, 7);
  EXPECT_EQ(read.width, 13);
  EXPECT_TRUE(std::equal(image.pixels.begin(), image.pixels.end(), read.pixels.begin(), read.pixels.end()));
  EXPECT_EQ(core::code_of([] { encode_png({}); }), core::ErrorCode::kInvalidArgument);
}

// One image of 40 x 60 pixels, with boxes of classes that have names and of others, or without.
class BoxedImage : public Dataset {
 public:
  explicit BoxedImage(bool boxed) : boxed_(boxed) {}
  int64_t size() const override { return 1; }
  int64_t label_count() const override { return 3; }
  int64_t first_label() const override { return 1; }
  std::vector<std::string> label_names() const override { return {"cat", "dog"}; }
  core::Result<Record> read(int64_t /*index*/) const override {
    Record record{.bytes = encode_png(flat_image(40, 60, 90)), .where = "the only one"};
    if (!boxed_) return record;
    record.boxes = kBoxes;
    record.box_labels = {1, 2, 3, 0};
    return record;
  }

  static inline const std::vector<Box> kBoxes = {
      {0, 0, 0.5F, 0.5F}, {0, 0.5F, 0.5F, 1}, {0.5F, 0, 1, 0.5F}, {0.5F, 0.5F, 1, 1}};

 private:
  bool boxed_;
};

TEST(ContactSheet, NamesTheBoxesOfBothImages) {
  ContactSheetOptions options{.transform = ssd300_input(false), .count = 1};
  options.transform.set_size(60, 80);
  const auto transform = transforms().get("coco")(options.transform);
  const ContactSheet boxed = make_contact_sheet(BoxedImage(true), *transform, options);
  ContactSheet expected = make_contact_sheet(BoxedImage(false), *transform, options);
  std::vector<DrawnBox> drawn;
  const char* const texts[] = {"cat", "dog", "3", "0"};
  const int64_t labels[] = {1, 2, 3, 0};
  for (size_t i = 0; i < 4; ++i) drawn.push_back({BoxedImage::kBoxes[i], labels[i], texts[i]});
  // The original is scaled to 53 x 80 in the middle of its field of 60 x 80.
  draw_boxes(expected.image, {4 + 3, 4, 53, 80}, drawn);
  draw_boxes(expected.image, {4, 4 + 80, 60, 80}, drawn);
  EXPECT_EQ(boxed.image.height, expected.image.height);
  EXPECT_EQ(boxed.image.width, expected.image.width);
  EXPECT_TRUE(boxed.image.pixels == expected.image.pixels);
  ASSERT_EQ(boxed.cells.size(), 1U);
  EXPECT_EQ(boxed.cells[0].box_labels, (std::vector<int64_t>{1, 2, 3, 0}));
  EXPECT_EQ(boxed.cells[0].where, "the only one");
}

TEST(ContactSheet, IsNoLargerThanAnImageMayBe) {
  ContactSheetOptions options{.count = 1};
  options.transform = {.height = 8000, .width = 8000, .distortions = false};
  const auto transform = transforms().get("imagenet")(options.transform);
  EXPECT_EQ(core::message_of([&] { make_contact_sheet(GrayImages(), *transform, options); }),
            "contact sheet is too large: expected at most 104857600 pixels, got 16012 x 8008; show fewer samples");
}

}  // namespace
}  // namespace trainyard::data::contact_sheet_test
