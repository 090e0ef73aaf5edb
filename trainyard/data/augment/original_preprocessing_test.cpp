// tf_cnn_benchmarks' own tests of its preprocessing (testPreprocessingEval, testPreprocessingTrain of its
// benchmark_cnn_test.py), with its sizes, colours and bounds.
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/data/augment/transform.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::original_preprocessing_test {
namespace {

// Returns the pixels, in [0, 255], of what the transform makes.
std::vector<float> pixels_of(const TransformOptions& options, const Record& record, const SampleKey& key = {}) {
  std::vector<float> out(3 * options.height * options.width, -1e9F);
  transforms().get("imagenet")(options)->apply(record, key, out.data()).value();
  for (float& value : out) value = (value + 1) * 127.5F;
  return out;
}

TEST(OriginalPreprocessing, EvaluationKeepsAFlatImageInEachSize) {
  for (const auto& [height, width, output_height, output_width] :
       {std::tuple{10, 10, 4, 4}, {4, 4, 10, 10}, {1, 100, 100, 1}, {100, 1, 1, 100}, {1, 100, 1, 100}}) {
    SCOPED_TRACE(fmt::format("{} x {} to {} x {}", height, width, output_height, output_width));
    const Record record{.encoding = Encoding::kRawChw,
                        .bytes = std::vector<std::byte>(static_cast<size_t>(3 * height * width), std::byte{128}),
                        .height = height,
                        .width = width};
    TransformOptions options{.height = output_height, .width = output_width, .training = false};
    for (const float value : pixels_of(options, record)) ASSERT_NEAR(value, 128, 1e-4);
  }
}

TEST(OriginalPreprocessing, TrainingKeepsBlackAndWhiteInEachSizeAndMethod) {
  for (const int colour : {255, 0}) {
    const Record record{.bytes = encode_jpeg(flat_image(120, 160, static_cast<uint8_t>(colour)), 95)};
    for (const auto& [height, width, method] :
         {std::tuple{100, 100, "round_robin"}, {150, 10, "bilinear"}, {10, 150, "nearest"}}) {
      for (const bool distortions : {true, false}) {
        for (const bool fused : {true, false}) {
          SCOPED_TRACE(fmt::format("{} as {} x {} by {}, distortions {}, fused {}", colour, height, width, method,
                                   distortions, fused));
          const TransformOptions options{.height = height,
                                         .width = width,
                                         .resize_method = method,
                                         .distortions = distortions,
                                         .fuse_decode_and_crop = fused};
          for (int64_t sample = 0; sample < 4; ++sample) {
            const float bound = distortions ? 50 : 1;
            for (const float value : pixels_of(options, record, {.sample = sample, .batch_position = sample})) {
              ASSERT_NEAR(value, colour, bound);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::data::original_preprocessing_test
