#include "trainyard/data/datasets/record_image.h"

#include <gtest/gtest.h>

#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/testing/exif.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::record_image_test {
namespace {

// Pixels have no EXIF data, whatever their bytes look like.
TEST(RecordBoxes, AreTurnedOnlyWithAnEncodedImage) {
  Record record{.bytes = with_exif(encode_jpeg(flat_image(8, 8, 1)), 6), .boxes = {{0.1F, 0.2F, 0.9F, 0.8F}}};
  EXPECT_FLOAT_EQ(record_boxes(record, false).at(0).ymin, 0.1F);
  EXPECT_FLOAT_EQ(record_boxes(record, true).at(0).ymin, 0.2F);
  for (const Encoding encoding : {Encoding::kDecoded, Encoding::kRawChw}) {
    record.encoding = encoding;
    EXPECT_FLOAT_EQ(record_boxes(record, true).at(0).ymin, 0.1F);
    EXPECT_FLOAT_EQ(record_boxes(record, true).at(0).xmax, 0.8F);
  }
}

}  // namespace
}  // namespace trainyard::data::record_image_test
