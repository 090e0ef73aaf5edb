#include "trainyard/data/tools/contact_sheet.h"

#include <utility>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/codecs/png_writer.h"
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

}  // namespace
}  // namespace trainyard::data::contact_sheet_test
