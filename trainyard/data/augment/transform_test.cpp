#include "trainyard/data/augment/transform.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/datasets/record_image.h"
#include "trainyard/data/image/resize.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::transform_test {
namespace {

Record jpeg_record(const Image& image) {
  return {.bytes = encode_jpeg(image, 95), .label = 1, .where = "shard-0 at offset 512"};
}

// Pixels as they are, [3, H, W].
Record raw_record(const Image& image) {
  Record record{.encoding = Encoding::kRawChw, .height = image.height, .width = image.width};
  for (int c = 0; c < 3; ++c) {
    for (size_t i = c; i < image.pixels.size(); i += 3) record.bytes.push_back(std::byte{image.pixels[i]});
  }
  return record;
}

std::vector<float> apply(const std::string& name, const TransformOptions& options, const Record& record,
                         const SampleKey& key = {}) {
  std::vector<float> out(3 * options.height * options.width);
  transforms().get(name)(options)->apply(record, key, out.data()).value();
  return out;
}

TransformOptions training(int64_t side) {
  return {.height = side, .width = side, .distortions = false};
}

TEST(ImagenetTransform, FlatImagesStayFlat) {
  const Record record = jpeg_record(flat_image(300, 400, 200));
  for (const char* method : {"nearest", "bilinear", "bicubic", "area"}) {
    for (bool train : {true, false}) {
      TransformOptions options = training(64);
      options.training = train;
      options.resize_method = method;
      for (float value : apply("imagenet", options, record)) ASSERT_NEAR(value, 200 / 127.5 - 1, 1e-4);
    }
  }
  TransformOptions mlperf = training(64);
  mlperf.normalization = Normalization::minus_mean(kImagenetChannelMeans);
  const std::vector<float> out = apply("imagenet", mlperf, record);
  EXPECT_NEAR(out[0], 200 - 123.68, 1e-3);
  EXPECT_NEAR(out[64 * 64], 200 - 116.78, 1e-3);
  EXPECT_NEAR(out[2 * 64 * 64], 200 - 103.94, 1e-3);
}

// The test of tf_cnn_benchmarks: black and white stay within 50 of 255, whatever the distortion.
TEST(ImagenetTransform, DistortionsStayNearBlackAndWhite) {
  for (uint8_t value : {uint8_t{0}, uint8_t{255}}) {
    const Record record = jpeg_record(flat_image(60, 80, value));
    for (bool in_yiq : {false, true}) {
      TransformOptions options = training(24);
      options.distortions = true;
      options.distort_color_in_yiq = in_yiq;
      for (int64_t sample = 0; sample < 20; ++sample) {
        for (float out : apply("imagenet", options, record, {.sample = sample, .batch_position = sample})) {
          ASSERT_NEAR((out + 1) * 127.5, value, 50);
          ASSERT_LE(std::abs(out), 1.00001F);
        }
      }
    }
  }
}

TEST(ImagenetTransform, FusedCropGivesTheSamePixels) {
  const Record record = jpeg_record(noisy_image(120, 150));
  for (int64_t sample = 0; sample < 30; ++sample) {
    TransformOptions options = training(48);
    options.distortions = true;
    const std::vector<float> fused = apply("imagenet", options, record, {.sample = sample});
    options.fuse_decode_and_crop = false;
    EXPECT_EQ(apply("imagenet", options, record, {.sample = sample}), fused) << sample;
  }
}

TEST(ImagenetTransform, DependsOnSeedEpochAndSampleAlone) {
  const Record record = jpeg_record(noisy_image(100, 100));
  const SampleKey key{.seed = 1, .epoch = 2, .sample = 3, .batch_position = 4};
  const std::vector<float> out = apply("imagenet", training(32), record, key);
  EXPECT_EQ(apply("imagenet", training(32), record, key), out);
  for (const SampleKey& other : {SampleKey{2, 2, 3, 4}, SampleKey{1, 3, 3, 4}, SampleKey{1, 2, 4, 4}}) {
    EXPECT_NE(apply("imagenet", training(32), record, other), out);
  }
  EXPECT_EQ(apply("imagenet", training(32), record, {1, 2, 3, 5}), out);  // only distortions look at the place
}

TEST(ImagenetTransform, PlaceInTheBatchChoosesOrderAndMethod) {
  const Record record = jpeg_record(noisy_image(100, 100));
  TransformOptions options = training(32);
  options.distortions = true;
  const auto at_place = [&](int64_t place) { return apply("imagenet", options, record, {.batch_position = place}); };
  EXPECT_EQ(at_place(0), at_place(2));
  EXPECT_NE(at_place(0), at_place(1));

  options = training(32);
  const char* methods[] = {"nearest", "bilinear", "bicubic", "area"};
  for (int64_t place = 0; place < 8; ++place) {
    options.resize_method = "round_robin";
    const std::vector<float> out = at_place(place);
    options.resize_method = methods[place % 4];
    EXPECT_EQ(at_place(place), out) << place;
  }
}

TEST(ImagenetTransform, MirrorsHalf) {
  // Dark to the left, bright to the right: every crop shows which way round it is.
  Image image{.height = 100, .width = 100};
  for (int i = 0; i < 100 * 100 * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i / 3 % 100 * 2));
  const Record record = raw_record(image);
  int mirrored = 0;
  for (int64_t sample = 0; sample < 1000; ++sample) {
    const std::vector<float> out = apply("imagenet", training(8), record, {.sample = sample});
    mirrored += out[0] > out[7] ? 1 : 0;
  }
  EXPECT_NEAR(mirrored, 500, 5 * std::sqrt(250));
}

// 500 x 375 to 224: resized to 341 x 256 (1.145 times 224), then the centre from (58, 16) on.
TEST(ImagenetTransform, EvaluationIsTheCentreOfAResizedImage) {
  const Image image = noisy_image(375, 500);
  TransformOptions options = training(224);
  options.training = false;
  const std::vector<float> out = apply("imagenet", options, raw_record(image));
  std::vector<float> whole(3 * 256 * 341);
  resize(image, {256, 341}, {0, 0, 256, 341}, {}, whole.data());
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < 224; ++y) {
      for (int x = 0; x < 224; ++x) {
        ASSERT_NEAR(out[(c * 224 + y) * 224 + x], whole[(c * 256 + 16 + y) * 341 + 58 + x] / 127.5 - 1, 1e-5);
      }
    }
  }
}

// Their longer side would be scaled to 2^32 pixels, which an int takes for 0.
TEST(ImagenetTransform, EvaluationOfARowOrColumnOfMillionsOfPixels) {
  for (const ImageSize size : {ImageSize{1, 16'777'216}, ImageSize{16'777'216, 1}}) {
    const Record record{.encoding = Encoding::kDecoded,
                        .image = std::make_shared<const Image>(flat_image(size.height, size.width, 200))};
    for (const int eval_resize_size : {0, 256}) {
      for (const char* method : {"nearest", "bilinear", "bicubic", "area"}) {
        for (const bool modern : {false, true}) {
          const TransformOptions options{.height = 224,
                                         .width = 224,
                                         .training = false,
                                         .resize_method = method,
                                         .resize_antialias = modern,
                                         .resize_half_pixel_centers = modern,
                                         .eval_resize_size = eval_resize_size};
          const std::vector<float> out = apply("imagenet", options, record);
          if (std::string(method) == "area") continue;  // float32, as TensorFlow has it, is too coarse for its weights
          for (const float value : out) ASSERT_NEAR(value, 200 / 127.5 - 1, 1e-3);
        }
      }
    }
  }
}

// The 256/224 convention: 500 x 375 to 341 x 256, the same centre; 400 x 400 to 256 x 256.
TEST(ImagenetTransform, EvaluationResizesTheShorterSide) {
  for (const auto& [size, resized] :
       {std::pair{ImageSize{375, 500}, ImageSize{256, 341}}, std::pair{ImageSize{400, 400}, ImageSize{256, 256}},
        std::pair{ImageSize{700, 300}, ImageSize{597, 256}}}) {
    const Image image = noisy_image(size.height, size.width);
    TransformOptions options = training(224);
    options.training = false;
    options.eval_resize_size = 256;
    const std::vector<float> out = apply("imagenet", options, raw_record(image));
    std::vector<float> centre(3 * 224 * 224);
    resize(image, resized, {(resized.height - 224) / 2, (resized.width - 224) / 2, 224, 224}, {}, centre.data());
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], centre[i] / 127.5 - 1, 1e-5) << i;
  }
}

// Rectangles, of which no side takes the other's length, by each method: a training image is its window scaled to the
// target, and an evaluation the centre of the image whose sides both reach 1.145 times the target.
TEST(ImagenetTransform, ModelsImagesNeedNotBeSquare) {
  const Image image = noisy_image(90, 120);
  for (const ImageSize target : {ImageSize{40, 56}, ImageSize{56, 40}}) {
    for (const char* method : {"nearest", "bilinear", "bicubic", "area"}) {
      TransformOptions options{
          .height = target.height, .width = target.width, .training = false, .resize_method = method};
      const float ratio = std::max(target.height / 90.0F, target.width / 120.0F);
      const ImageSize scaled{static_cast<int>(90 * ratio * 1.145F), static_cast<int>(120 * ratio * 1.145F)};
      const CropWindow centre{(scaled.height - target.height) / 2, (scaled.width - target.width) / 2, target.height,
                              target.width};
      std::vector<float> expected(size_t{3} * target.height * target.width);
      resize(image, scaled, centre, {.method = resize_method(method)}, expected.data());
      std::vector<float> out = apply("imagenet", options, raw_record(image));
      for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i] / 127.5 - 1, 1e-5) << method << i;

      options.training = true;
      options.distortions = false;
      options.crop = {.min_aspect_ratio = 4 / 3.0F, .max_aspect_ratio = 4 / 3.0F, .min_area = 1, .max_area = 1};
      resize(image, target, {0, 0, target.height, target.width}, {.method = resize_method(method)}, expected.data());
      out = apply("imagenet", options, raw_record(image));
      const bool mirrored = std::abs(out[0] - (expected[0] / 127.5 - 1)) > 1e-5;
      resize(image, target, {0, 0, target.height, target.width}, {.method = resize_method(method), .mirror = mirrored},
             expected.data());
      for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i] / 127.5 - 1, 1e-5) << method << i;
    }
    TransformOptions options{
        .height = target.height, .width = target.width, .training = false, .resize_method = "crop"};
    const std::vector<float> out = apply("imagenet", options, raw_record(image));
    const int top = (90 - target.height) / 2, left = (120 - target.width) / 2;
    for (int y = 0; y < target.height; ++y) {
      for (int x = 0; x < target.width; ++x) {
        ASSERT_NEAR(out[y * target.width + x], image.pixels[3 * ((top + y) * 120 + left + x)] / 127.5 - 1, 1e-6);
      }
    }
  }
}

// Nothing is scaled: evaluation is the centre of the image, training that of a random window, zeros around it.
TEST(ImagenetTransform, MethodCropKeepsThePixels) {
  TransformOptions options = training(24);
  options.resize_method = "crop";
  options.training = false;
  const Image image = noisy_image(40, 61);
  for (bool fused : {false, true}) {
    options.fuse_decode_and_crop = fused;
    const std::vector<float> out = apply("imagenet", options, raw_record(image));
    for (int y = 0; y < 24; ++y) {
      for (int x = 0; x < 24; ++x) {
        ASSERT_NEAR(out[y * 24 + x], image.pixels[3 * ((8 + y) * 61 + 18 + x)] / 127.5 - 1, 1e-6);
      }
    }
  }
  options.training = true;
  options.crop = {.min_object_covered = 0, .min_area = 0.01F, .max_area = 0.05F};  // windows of about 8 x 8
  for (int64_t sample = 0; sample < 50; ++sample) {
    const std::vector<float> out = apply("imagenet", options, raw_record(flat_image(40, 61, 255)), {.sample = sample});
    int outside = 0;
    for (int i = 0; i < 24 * 24; ++i) outside += out[i] == -1 ? 1 : 0;
    EXPECT_GT(outside, 24 * 24 * 3 / 5);
    EXPECT_EQ(out[0], -1);
    EXPECT_NEAR(out[12 * 24 + 12], 1, 1e-6);
  }
}

TEST(ImagenetTransform, BoxesCountUnlessTheyAreIgnored) {
  Record record = raw_record(noisy_image(100, 100));
  record.boxes = {{.ymin = 0.9F, .xmin = 0.9F, .ymax = 1, .xmax = 1}};
  TransformOptions options = training(16);
  int different = 0;
  for (int64_t sample = 0; sample < 20; ++sample) {
    options.use_boxes = true;
    const std::vector<float> with = apply("imagenet", options, record, {.sample = sample});
    options.use_boxes = false;
    const std::vector<float> without = apply("imagenet", options, record, {.sample = sample});
    different += with != without ? 1 : 0;
    Record no_boxes = record;
    no_boxes.boxes.clear();
    EXPECT_EQ(apply("imagenet", options, no_boxes, {.sample = sample}), without);
  }
  EXPECT_GT(different, 5);
}

// Policies and erasing change training images alone, as functions of seed, epoch and sample, and leave the crop as it
// is.
TEST(Transform, AugmentationIsAFunctionOfTheSample) {
  for (const char* name : {"imagenet", "cifar10"}) {
    const Record record = raw_record(noisy_image(40, 40));
    TransformOptions plain = training(24);
    for (const bool erasing : {false, true}) {
      TransformOptions options = plain;
      if (erasing) {
        options.random_erasing.probability = 1;
      } else {
        options.auto_augment.policy = AutoAugmentPolicy::kTrivial;
      }
      const SampleKey key{.seed = 1, .epoch = 2, .sample = 3};
      int changed = 0, alike = 0;
      for (int64_t sample = 0; sample < 50; ++sample) {
        const std::vector<float> out = apply(name, options, record, {1, 2, sample, 0});
        EXPECT_EQ(apply(name, options, record, {1, 2, sample, 7}), out);
        const std::vector<float> without = apply(name, plain, record, {1, 2, sample, 0});
        changed += out != without ? 1 : 0;
        alike += apply(name, options, record, {1, 3, sample, 0}) == out ? 1 : 0;
        if (!erasing) continue;
        for (size_t i = 0; i < out.size(); ++i) ASSERT_TRUE(out[i] == 0 || out[i] == without[i]);
      }
      EXPECT_GT(changed, 35) << name;
      EXPECT_LT(alike, 15) << name;
      options.training = plain.training = false;
      EXPECT_EQ(apply(name, options, record, key), apply(name, plain, record, key));
      plain.training = true;
    }
  }
}

TEST(ImagenetTransform, OddSizesWork) {
  for (const ImageSize size : {ImageSize{1, 1}, ImageSize{1, 900}, ImageSize{700, 2}, ImageSize{24, 24}}) {
    const Record record = jpeg_record(noisy_image(size.height, size.width));
    for (bool train : {true, false}) {
      for (const char* method : {"bilinear", "crop"}) {
        TransformOptions options = training(24);
        options.training = train;
        options.resize_method = method;
        for (float value : apply("imagenet", options, record)) ASSERT_TRUE(std::isfinite(value));
      }
    }
  }
}

TEST(Transform, BadImagesSayWhereTheyAre) {
  const auto png = encode_png(noisy_image(40, 40));
  EXPECT_NO_THROW(apply("imagenet", training(8), {.bytes = png, .where = "x"}));  // a PNG named .JPEG is fine
  auto truncated = encode_jpeg(noisy_image(40, 40));
  truncated.resize(truncated.size() / 2);
  const std::vector<std::pair<Record, std::string>> cases = {
      {{.bytes = {}, .where = "shard-0 at offset 7"},
       "image is empty: shard-0 at offset 7: expected JPEG, PNG, WebP, GIF, BMP or TIFF, got 0 bytes"},
      {{.bytes = truncated, .where = "shard-0 at offset 7"},
       "JPEG cannot be decoded: Premature end of JPEG file: shard-0 at offset 7"},
      {{.encoding = Encoding::kRawChw, .bytes = {}, .height = 2, .width = 2, .where = "shard-0 at offset 7"},
       "raw image has the wrong size: shard-0 at offset 7: expected 12 bytes, got 0"}};
  for (const char* name : {"imagenet", "cifar10", "shapes"}) {
    TransformOptions options = training(8);
    options.training = false;
    const auto transform = transforms().get(name)(options);
    std::vector<float> out(3 * 8 * 8);
    for (const auto& [record, message] : cases) {
      const auto result = transform->apply(record, {}, out.data());
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().code(), core::ErrorCode::kCorruptData);
      EXPECT_EQ(result.error().what(), message);
    }
  }
}

// The size is asked for before the pixels.
TEST(ImagenetTransform, AnImageWithoutASizeIsABadSample) {
  const Record record{.bytes = {}, .where = "shard-0 at offset 7"};
  std::vector<float> out(3 * 8 * 8);
  for (const bool train : {true, false}) {
    TransformOptions options = training(8);
    options.training = train;
    options.resize_method = "crop";
    const auto result = transforms().get("imagenet")(options)->apply(record, {}, out.data());
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code(), core::ErrorCode::kCorruptData);
    EXPECT_TRUE(core::says(result.error(), "image is empty: shard-0 at offset 7")) << result.error().what();
  }
}

TEST(Transform, RefusesBadOptions) {
  EXPECT_THROW(transforms().get("imagenet")({.height = 0}), core::Error);
  EXPECT_THROW(transforms().get("cifar10")({.width = -1}), core::Error);
  EXPECT_THROW(transforms().get("imagenet")({.resize_method = "lanczos"}), core::Error);
  EXPECT_THROW(transforms().get("imagenet")({.eval_resize_size = 223}), core::Error);
  EXPECT_THROW(transforms().get("imagenet")({.crop = {.min_area = 0}}), core::Error);
  EXPECT_THROW(transforms().get("imagnet"), core::Error);
}

TEST(CifarTransform, EvaluationKeepsThePixels) {
  const Image image = noisy_image(32, 32);
  TransformOptions options = training(32);
  options.training = false;
  const std::vector<float> out = apply("cifar10", options, raw_record(image));
  for (int i = 0; i < 32 * 32; ++i) {
    for (int c = 0; c < 3; ++c) ASSERT_NEAR(out[c * 1024 + i], image.pixels[3 * i + c] / 127.5 - 1, 1e-6);
  }
}

// What resize() makes of the whole image, rounded, in evaluation and in the middle of a training image.
TEST(CifarTransform, OtherSizesAreResized) {
  const Image image = noisy_image(11, 9);
  for (const ImageSize size : {ImageSize{6, 8}, ImageSize{24, 7}, ImageSize{11, 10}}) {
    TransformOptions options{.height = size.height, .width = size.width, .training = false};
    const size_t plane = static_cast<size_t>(size.height) * size.width;
    std::vector<float> expected(3 * plane);
    resize(image, size, {0, 0, size.height, size.width}, {.antialias = true, .half_pixel_centers = true},
           expected.data());
    const std::vector<float> out = apply("cifar10", options, raw_record(image));
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], std::round(expected[i]) / 127.5 - 1, 1e-5) << i;
    options.training = true;
    for (const float value : apply("cifar10", options, raw_record(flat_image(11, 9, 255)))) {
      EXPECT_NEAR(std::abs(value), 1, 1e-6) << "neither the image nor the padding around it";
    }
  }
}

// 4 rows or columns at most, on one side: padding is counted in pixels of the model's image.
TEST(CifarTransform, TrainingPadsWhatWasResized) {
  const Image image = flat_image(5, 6, 255);
  const TransformOptions options{.height = 10, .width = 12};
  std::set<std::pair<int, int>> borders;  // rows and columns of zeros
  for (int64_t sample = 0; sample < 500; ++sample) {
    const std::vector<float> out = apply("cifar10", options, raw_record(image), {.sample = sample});
    int rows = 0, columns = 0;
    for (int y = 0; y < 10; ++y)
      rows += *std::max_element(out.begin() + y * 12, out.begin() + (y + 1) * 12) < 0 ? 1 : 0;
    for (int x = 0; x < 12; ++x) {
      bool dark = true;
      for (int y = 0; y < 10; ++y) dark = dark && out[y * 12 + x] < 0;
      columns += dark ? 1 : 0;
    }
    borders.insert({rows, columns});
  }
  EXPECT_EQ(borders.size(), 25U) << "0 to 4 rows by 0 to 4 columns";
}

// Each training image is one of the 9 x 9 windows of the padded image, mirrored or not, and all of them occur.
TEST(CifarTransform, TrainingTakesEveryWindowOfThePaddedImage) {
  const Image image = noisy_image(32, 32);
  TransformOptions options = training(32);
  options.distortions = true;
  const auto padded = [&](int y, int x, int c) {
    const bool inside = y >= 4 && y < 36 && x >= 4 && x < 36;
    return inside ? static_cast<float>(image.pixels[3 * ((y - 4) * 32 + x - 4) + c]) : 0.0F;
  };
  std::set<std::vector<float>> windows;
  for (int top = 0; top <= 8; ++top) {
    for (int left = 0; left <= 8; ++left) {
      for (bool mirror : {false, true}) {
        std::vector<float> window;
        for (int c = 0; c < 3; ++c) {
          for (int y = 0; y < 32; ++y) {
            for (int x = 0; x < 32; ++x) window.push_back(padded(top + y, left + (mirror ? 31 - x : x), c));
          }
        }
        for (float& value : window) value = std::round(value);
        windows.insert(std::move(window));
      }
    }
  }
  ASSERT_EQ(windows.size(), 162u);
  std::set<std::vector<float>> seen;
  const auto transform = transforms().get("cifar10")(options);
  const Record record = raw_record(image);
  std::vector<float> out(3 * 32 * 32);
  for (int64_t sample = 0; sample < 2500; ++sample) {
    transform->apply(record, {.sample = sample}, out.data()).value();
    for (float& value : out) value = std::round((value + 1) * 127.5F);
    ASSERT_TRUE(windows.contains(out)) << sample;
    seen.insert(out);
  }
  EXPECT_EQ(seen.size(), 162u);
}

// Each training image is one of the 25 windows of the image padded by reflection, as torch's reflect padding places it.
TEST(CifarTransform, TranslationReflectsTheImageAtItsEdge) {
  const Image image = noisy_image(8, 8);
  const TransformOptions options{.height = 8, .width = 8, .distortions = false, .translate = 2};
  // Rows and columns of the padded image, in torch.nn.functional.pad(torch.arange(8.).view(1, 1, 8), (2, 2),
  // 'reflect').
  constexpr std::array<int, 12> kPadded = {2, 1, 0, 1, 2, 3, 4, 5, 6, 7, 6, 5};
  std::map<std::vector<float>, int> windows;
  for (int top = 0; top < 5; ++top) {
    for (int left = 0; left < 5; ++left) {
      std::vector<float> window;
      for (int c = 0; c < 3; ++c) {
        for (int y = 0; y < 8; ++y) {
          for (int x = 0; x < 8; ++x)
            window.push_back(image.pixels[3 * (kPadded[top + y] * 8 + kPadded[left + x]) + c]);
        }
      }
      windows[window] = 0;
    }
  }
  ASSERT_EQ(windows.size(), 25U);
  for (int64_t sample = 0; sample < 5000; ++sample) {
    std::vector<float> out =
        apply("cifar10", options, raw_record(image), {.epoch = sample / 100, .sample = sample % 100});
    for (float& value : out) value = std::round((value + 1) * 127.5F);
    ASSERT_TRUE(windows.contains(out)) << sample;
    ++windows[out];
  }
  for (const auto& [window, count] : windows) EXPECT_NEAR(count, 200, 70) << "five standard deviations";
}

TEST(CifarTransform, FlipsAreChosenApartFromTheCrop) {
  const Image image = noisy_image(8, 8);
  TransformOptions options{.height = 8, .width = 8, .distortions = false};
  const std::vector<float> plain = apply("cifar10", options, raw_record(image), {.sample = 3});
  std::vector<float> mirrored(plain.size());
  for (size_t i = 0; i < plain.size(); ++i) mirrored[i] = plain[i / 8 * 8 + 7 - i % 8];
  const auto flipped = [&](int64_t epoch, int64_t sample, uint64_t seed = 1) {
    const std::vector<float> out =
        apply("cifar10", options, raw_record(image), {.seed = seed, .epoch = epoch, .sample = sample});
    EXPECT_TRUE(out == plain || out == mirrored);
    return out == mirrored;
  };
  for (int64_t sample = 0; sample < 50; ++sample) EXPECT_FALSE(flipped(0, sample)) << "distortions are off";
  options.flip = Flip::kAlternating;
  int in_first = 0, with_other_seed = 0;
  for (int64_t sample = 0; sample < 1000; ++sample) {
    const bool first = flipped(0, sample);
    in_first += first ? 1 : 0;
    with_other_seed += flipped(0, sample, 2) == first ? 1 : 0;
    for (int64_t epoch = 1; epoch < 6; ++epoch) ASSERT_EQ(flipped(epoch, sample), first == (epoch % 2 == 0)) << epoch;
  }
  EXPECT_NEAR(in_first, 500, 80) << "five standard deviations";
  EXPECT_NEAR(with_other_seed, 500, 80);
  options.flip = Flip::kRandom;
  int changes = 0;
  for (int64_t sample = 0; sample < 1000; ++sample) changes += flipped(0, sample) != flipped(1, sample) ? 1 : 0;
  EXPECT_NEAR(changes, 500, 80) << "drawn anew";
  options.distortions = true;
  options.flip = Flip::kNone;
  for (int64_t sample = 0; sample < 50; ++sample) {
    EXPECT_FALSE(draw_transform("cifar10", options, raw_record(image), {.sample = sample}).value().mirrored);
  }
}

// A flip of ImageNet's images changes neither the window nor the colours.
TEST(ImagenetTransform, FlipsLeaveTheOtherDrawsAlone) {
  const Record record = raw_record(noisy_image(40, 50));
  int mirrored = 0;
  for (int64_t sample = 0; sample < 200; ++sample) {
    TransformOptions options{.height = 16, .width = 16};
    const SampleKey key{.seed = 3, .epoch = sample % 2, .sample = sample / 2};
    TransformDraw random = draw_transform("imagenet", options, record, key).value();
    options.flip = Flip::kAlternating;
    TransformDraw alternating = draw_transform("imagenet", options, record, key).value();
    mirrored += alternating.mirrored ? 1 : 0;
    options.flip = Flip::kNone;
    TransformDraw none = draw_transform("imagenet", options, record, key).value();
    EXPECT_FALSE(none.mirrored);
    random.mirrored = alternating.mirrored = false;
    EXPECT_EQ(random, none);
    EXPECT_EQ(alternating, none);
  }
  EXPECT_EQ(mirrored, 100) << "each sample once in two epochs";
}

// A square of zeros, wholly inside, each place as often as the others.
TEST(Transforms, CutoutMakesASquareZero) {
  const Record record = raw_record(flat_image(10, 8, 200));
  for (const char* name : {"cifar10", "imagenet"}) {
    TransformOptions options{.height = 10, .width = 8, .distortions = false, .cutout = 5};
    std::map<std::pair<int, int>, int> corners;
    for (int64_t sample = 0; sample < 2400; ++sample) {
      const std::vector<float> out = apply(name, options, record, {.sample = sample});
      const auto first = std::find(out.begin(), out.end(), 0.0F) - out.begin();
      const int top = static_cast<int>(first) / 8, left = static_cast<int>(first) % 8;
      ++corners[{top, left}];
      for (int i = 0; i < 3 * 80; ++i) {
        const int y = i % 80 / 8, x = i % 8;
        const bool inside = y >= top && y < top + 5 && x >= left && x < left + 5;
        ASSERT_EQ(out[i] == 0, inside) << name << " " << sample << " " << i;
      }
      EXPECT_EQ(draw_transform(name, options, record, {.sample = sample}).value().cut_out,
                (CropWindow{top, left, 5, 5}));
    }
    EXPECT_EQ(corners.size(), 24U) << "6 rows, 4 columns";
    for (const auto& [corner, count] : corners) EXPECT_NEAR(count, 100, 50) << "five standard deviations";
    options.training = false;
    const std::vector<float> whole = apply(name, options, record, {});
    EXPECT_EQ(std::count(whole.begin(), whole.end(), 0.0F), 0);
  }
}

TEST(Transforms, RefuseMovesAndSquaresBeyondTheImage) {
  EXPECT_NO_THROW((TransformOptions{.height = 9, .width = 8, .translate = 7, .cutout = 8}.validate()));
  EXPECT_THROW((TransformOptions{.height = 9, .width = 8, .translate = 8}.validate()), core::Error);
  EXPECT_THROW((TransformOptions{.height = 9, .width = 8, .translate = -1}.validate()), core::Error);
  EXPECT_THROW((TransformOptions{.height = 9, .width = 8, .cutout = 9}.validate()), core::Error);
}

TEST(Transforms, SayWhichOptionIsOutOfRange) {
  const auto refusal = [](const TransformOptions& options) { return core::message_of([&] { options.validate(); }); };
  EXPECT_THAT(refusal({.height = 0, .width = 5}), core::Says("expected at least 1 x 1 pixels", "got 5 x 0"));
  EXPECT_THAT(refusal({.height = 9, .width = 8, .translate = 8}), core::Says("expected 0 to 7 pixels, got 8"));
  EXPECT_THAT(refusal({.height = 9, .width = 8, .cutout = 9}), core::Says("expected 0 to 8 pixels, got 9"));
  EXPECT_THAT(refusal({.height = 9, .width = 8, .cutout = -1}), core::Says("expected 0 to 8 pixels, got -1"));
  EXPECT_EQ(refusal({.height = 100, .width = 224, .eval_resize_size = 224}), "no error");
  EXPECT_THAT(refusal({.height = 100, .width = 224, .eval_resize_size = 223}),
              core::Says("expected at least 224 pixels, or 0, got 223", "0 is 1.145 times"));
  EXPECT_EQ(refusal({.eval_central_part = 1}), "no error");
  EXPECT_THAT(refusal({.eval_central_part = 1.5F}), core::Says("expected at most 1", "got 1.5, resized to 0"));
  EXPECT_THAT(refusal({.eval_central_part = -0.5F}), core::Says("expected at most 1", "got -0.5, resized to 0"));
  EXPECT_THAT(refusal({.eval_resize_size = 256, .eval_central_part = 0.5F}),
              core::Says("expected at most 1", "got 0.5, resized to 256"));
  EXPECT_THAT(refusal({.eval_central_part = std::nanf("")}), core::Says("expected at most 1", "resized to 0"));
}

// By the longer side, before and after.
TEST(Transforms, ASizeOfTheEvaluationKeepsItsRatio) {
  const auto resized = [](TransformOptions options, int64_t height, int64_t width) {
    options.set_size(height, width);
    EXPECT_EQ(options.height, height);
    EXPECT_EQ(options.width, width);
    return options.eval_resize_size;
  };
  EXPECT_EQ(resized({.height = 224, .width = 100, .eval_resize_size = 256}, 96, 96), 110);
  EXPECT_EQ(resized({.height = 100, .width = 224, .eval_resize_size = 256}, 448, 32), 512);
  EXPECT_EQ(resized({.height = 224, .width = 224, .eval_resize_size = 224}, 32, 97), 97);
  EXPECT_EQ(resized({.height = 224, .width = 224}, 32, 97), 0);
  EXPECT_EQ(resized({.height = 1, .width = 1, .eval_resize_size = 2}, 3, 3), 6);
  EXPECT_EQ(resized({.height = 224, .width = 224, .eval_resize_size = 256}, 1, 1), 1);
}

// Half of the margin, rounded down; negative where the target is larger.
TEST(CentredStart, IsHalfOfTheMargin) {
  EXPECT_EQ(centred_start(10, 4), 3);
  EXPECT_EQ(centred_start(10, 5), 2);
  EXPECT_EQ(centred_start(5, 5), 0);
  EXPECT_EQ(centred_start(5, 10), -2);
  EXPECT_EQ(centred_start(4, 10), -3);
}

// The part that is cut out of the decoded image is as large as the model's image.
TEST(ImagenetTransform, ScaledDecodingLeavesEnoughForTheCentralPart) {
  const auto scales = [](ImageSize target, float part, ImageSize size) {
    const Record record = jpeg_record(noisy_image(size.height, size.width));
    TransformOptions options{.height = target.height, .width = target.width, .training = false};
    options.eval_central_part = part;
    const std::vector<float> whole = apply("imagenet", options, record);
    options.eval_scaled_decode = true;
    return apply("imagenet", options, record) != whole;
  };
  EXPECT_TRUE(scales({40, 30}, 0.5F, {160, 120}));
  EXPECT_FALSE(scales({40, 30}, 0.5F, {159, 120}));
  EXPECT_FALSE(scales({40, 30}, 0.5F, {160, 119}));
  EXPECT_TRUE(scales({41, 41}, 0.4F, {206, 206}));
  EXPECT_FALSE(scales({41, 41}, 0.4F, {205, 205})) << "103 rows are needed, 102 would be there";
  EXPECT_TRUE(scales({40, 30}, 0, {80, 60}));
  EXPECT_FALSE(scales({40, 30}, 0, {79, 60}));
}

TEST(ImagenetTransform, TrainingAndEvaluationScaleWhileDecodingByTheirOwnOption) {
  const Record record = jpeg_record(noisy_image(90, 120));
  const auto made = [&](bool train, bool scaled, bool eval_scaled) {
    TransformOptions options{.height = 40, .width = 56, .training = train, .distortions = false};
    options.crop = {.min_aspect_ratio = 4 / 3.0F, .max_aspect_ratio = 4 / 3.0F, .min_area = 1, .max_area = 1};
    options.scaled_decode = scaled;
    options.eval_scaled_decode = eval_scaled;
    return apply("imagenet", options, record);
  };
  for (const bool train : {false, true}) {
    EXPECT_NE(made(train, train, !train), made(train, false, false)) << train;
    EXPECT_EQ(made(train, !train, train), made(train, false, false)) << train;
  }
}

}  // namespace
}  // namespace trainyard::data::transform_test
