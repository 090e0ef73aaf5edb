// The device transform with the input's kernel for GPUs, which runs on the CPU (tests/cuda_emulation), against the
// CPU's transform. JPEGs are decoded by libjpeg here: what nvJPEG makes of them only a GPU can tell.
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "trainyard/core/cuda/libtorch.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/cuda/kernels.h"
#include "trainyard/data/device/device_transform.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/data/testing/exif.h"
#include "trainyard/data/testing/jpeg_dataset.h"
#include "trainyard/data/testing/jpeg_encoder.h"

namespace trainyard::data::emulated_image_device_test {
namespace {

class EmulatedDevice : public ImageDevice {
 public:
  explicit EmulatedDevice(at::ScalarType dtype = at::kFloat) : dtype_(dtype) {}
  c10::Device device() const override { return c10::kCPU; }
  at::ScalarType dtype() const override { return dtype_; }

  std::string sample_jpeg(std::span<const std::byte> file, ImageSize size, const PixelSampling& sampling,
                          void* out) override {
    if (refuses) return "this device decodes nothing";
    ++jpegs;
    const Image image = decode_jpeg(file).value();
    EXPECT_EQ(image.height, size.height);
    EXPECT_EQ(image.width, size.width);
    run(image, sampling, out);
    return "";
  }
  void sample_pixels(const ImageView& pixels, const PixelSampling& sampling, void* out) override {
    ++decoded_here;
    run(pixels, sampling, out);
  }

  bool refuses = false;
  std::atomic<int> jpegs = 0, decoded_here = 0;

 private:
  void run(const ImageView& pixels, const PixelSampling& sampling, void* out) const {
    // As large as it must be, so that a tap outside is outside of what was allocated.
    const Image exact = copy_of(pixels);
    cuda::SampledImage image{.pixels = exact.pixels.data(),
                             .row_bytes = int64_t{3} * exact.width,
                             .row_begins = sampling.rows.first.data(),
                             .column_begins = sampling.columns.first.data(),
                             .row_taps = sampling.rows.taps.data(),
                             .column_taps = sampling.columns.taps.data(),
                             .height = static_cast<int>(sampling.rows.first.size()) - 1,
                             .width = static_cast<int>(sampling.columns.first.size()) - 1};
    for (const Tap& tap : sampling.rows.taps) ASSERT_TRUE(tap.index >= 0 && tap.index < exact.height);
    for (const Tap& tap : sampling.columns.taps) ASSERT_TRUE(tap.index >= 0 && tap.index < exact.width);
    std::memcpy(image.scale, sampling.scale.data(), sizeof image.scale);
    std::memcpy(image.shift, sampling.shift.data(), sizeof image.shift);
    image.clip = sampling.clip;
    const core::cuda::Element element = core::cuda::element_of(dtype_).value();
    // The emulation has one grid for all threads.
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    cuda::sample_image(image, element, out, nullptr);
  }

  at::ScalarType dtype_;
};

Record jpeg_record(const Image& image, ChromaSubsampling subsampling = ChromaSubsampling::k420) {
  return {.bytes = encode_jpeg(image, 90, subsampling), .label = 1, .where = "shard-0 at offset 512"};
}

TransformOptions plain(int64_t height, int64_t width) {
  return {.height = height, .width = width, .distortions = false};
}

// float [3, height, width] of both.
at::Tensor by_cpu(const TransformOptions& options, const Record& record, const SampleKey& key) {
  at::Tensor out = at::empty({3, options.height, options.width}, at::kFloat);
  transforms().get("imagenet")(options)->apply(record, key, out.mutable_data_ptr()).value();
  return out;
}
at::Tensor by_device(const TransformOptions& options, const std::shared_ptr<EmulatedDevice>& device,
                     const Record& record, const SampleKey& key) {
  at::Tensor out = at::empty({options.height, options.width, 3}, device->dtype());
  make_device_transform(options, device)->apply(record, key, out.mutable_data_ptr()).value();
  return out.to(at::kFloat).permute({2, 0, 1}).contiguous();
}

// In units of what is compared: values of a few units, whose neighbours in the dtype are `step` times the value apart.
double rounding(at::ScalarType dtype) {
  return dtype == at::kFloat ? 1e-5 : dtype == at::kHalf ? 0x1p-10 : 0x1p-7;
}

void expect_alike(const TransformOptions& options, const Record& record, at::ScalarType dtype, int64_t sample,
                  const std::string& what) {
  const SampleKey key{.seed = 3, .epoch = 1, .sample = sample, .batch_position = sample};
  const auto device = std::make_shared<EmulatedDevice>(dtype);
  const at::Tensor expected = by_cpu(options, record, key), found = by_device(options, device, record, key);
  const at::Tensor allowed = expected.abs().mul(rounding(dtype)).add(2e-5);
  EXPECT_TRUE(found.sub(expected).abs().le(allowed).all().item<bool>())
      << what << ", sample " << sample << ", dtype " << toString(dtype) << ": "
      << found.sub(expected).abs().max().item<float>();
}

TEST(EmulatedImageDevice, MakesTheCpusPixels) {
  const Record record = jpeg_record(noisy_image(37, 53));
  for (const char* method : {"nearest", "bilinear", "bicubic", "area", "round_robin"}) {
    for (const bool training : {true, false}) {
      for (const bool smooth : {true, false}) {
        TransformOptions options = plain(17, 22);
        options.resize_method = method;
        options.training = training;
        options.resize_antialias = options.resize_half_pixel_centers = smooth;
        for (int64_t sample = 0; sample < 4; ++sample) expect_alike(options, record, at::kFloat, sample, method);
      }
    }
  }
}

TEST(EmulatedImageDevice, ScalesByThePresetsConventions) {
  const Record record = jpeg_record(noisy_image(37, 53));
  for (const std::string& preset : input_presets().names()) {
    for (const bool training : {true, false}) {
      TransformOptions options = input_presets().get(preset);
      options.set_size(17, 17);
      options.training = training;
      options.distortions = options.scaled_decode = false;
      for (int64_t sample = 0; sample < 4; ++sample) expect_alike(options, record, at::kFloat, sample, preset);
    }
  }
}

// nvJPEG turns nothing: the CPU decodes what EXIF data turn.
TEST(EmulatedImageDevice, TurnsImagesAsTheirExifDataSay) {
  for (const int orientation : {1, 3, 6, 8}) {
    Record record = jpeg_record(noisy_image(37, 53));
    record.bytes = with_exif(record.bytes, orientation);
    for (const bool training : {true, false}) {
      TransformOptions options = plain(17, 22);
      options.training = training;
      options.exif_orientation = true;
      for (int64_t sample = 0; sample < 3; ++sample) {
        expect_alike(options, record, at::kFloat, sample, std::to_string(orientation));
      }
    }
  }
}

TEST(EmulatedImageDevice, RoundsToTheModelsDtype) {
  const Record record = jpeg_record(noisy_image(40, 31), ChromaSubsampling::k444);
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    TransformOptions options = plain(19, 23);
    options.normalization = Normalization::standardized(kImagenetMean, kImagenetStandardDeviation);
    for (int64_t sample = 0; sample < 6; ++sample) expect_alike(options, record, dtype, sample, "noise");
  }
}

// Windows of a pixel or a few, images of one, models larger than their images.
TEST(EmulatedImageDevice, SmallAndOddSizes) {
  for (const auto& [height, width] : {std::pair{1, 1}, {1, 9}, {7, 1}, {13, 30}}) {
    const Record record = jpeg_record(noisy_image(height, width));
    TransformOptions options = plain(5, 33);
    options.crop.method = CropMethod::kResizedCrop;
    options.crop.min_area = 0.001F;
    options.crop.max_area = 0.02F;
    for (int64_t sample = 0; sample < 8; ++sample) expect_alike(options, record, at::kFloat, sample, "tiny windows");
    options.training = false;
    expect_alike(options, record, at::kFloat, 0, "evaluation");
  }
}

TEST(EmulatedImageDevice, APhotograph) {
  std::ifstream file("trainyard/data/testdata/scaled_420.jpg", std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  Record record{.label = 1, .where = "scaled_420.jpg"};
  record.bytes.resize(content.size());
  std::memcpy(record.bytes.data(), content.data(), content.size());
  TransformOptions options = plain(96, 96);
  for (int64_t sample = 0; sample < 4; ++sample) expect_alike(options, record, at::kHalf, sample, "photograph");
}

TEST(EmulatedImageDevice, WhatTheDeviceDoesNotDecodeIsDecodedHere) {
  const Image image = noisy_image(24, 32);
  const Record jpeg = jpeg_record(image);
  Record png = jpeg, cmyk = jpeg, progressive = jpeg, rgb = jpeg, cut_short = jpeg, decoded = jpeg;
  png.bytes = encode_png(image);
  std::vector<uint8_t> four(size_t{4} * 24 * 32, 100);
  cmyk.bytes = encode_with(four, 24, 32, JCS_CMYK, [](jpeg_compress_struct&) {});
  rgb.bytes = encode_with(image.pixels, 24, 32, JCS_RGB,
                          [](jpeg_compress_struct& codec) { jpeg_set_colorspace(&codec, JCS_RGB); });
  progressive.bytes =
      encode_with(image.pixels, 24, 32, JCS_RGB, [](jpeg_compress_struct& codec) { jpeg_simple_progression(&codec); });
  cut_short.bytes.resize(cut_short.bytes.size() - 2);
  decoded.encoding = Encoding::kDecoded;
  decoded.image = std::make_shared<const Image>(decode_jpeg(jpeg.bytes).value());
  const TransformOptions options = plain(16, 16);
  const auto device = std::make_shared<EmulatedDevice>();
  for (const auto& [record, there] :
       {std::pair{jpeg, true}, {progressive, true}, {png, false}, {cmyk, false}, {rgb, false}, {decoded, false}}) {
    const int jpegs = device->jpegs, here = device->decoded_here;
    const at::Tensor expected = by_cpu(options, record, {.seed = 5});
    EXPECT_LE(by_device(options, device, record, {.seed = 5}).sub(expected).abs().max().item<float>(), 3e-5F);
    EXPECT_EQ(device->jpegs, jpegs + (there ? 1 : 0));
    EXPECT_EQ(device->decoded_here, here + (there ? 0 : 1));
  }
  device->refuses = true;
  const at::Tensor expected = by_cpu(options, jpeg, {.seed = 6});
  EXPECT_LE(by_device(options, device, jpeg, {.seed = 6}).sub(expected).abs().max().item<float>(), 3e-5F);
  EXPECT_EQ(unusual_jpeg(cut_short.bytes), "it ends without an end marker");
}

// A bad sample is one, with the same words, wherever images are decoded.
TEST(EmulatedImageDevice, ABadSampleIsTheSameBadSample) {
  Record record = jpeg_record(noisy_image(40, 40));
  const TransformOptions options = plain(16, 16);
  const auto device = std::make_shared<EmulatedDevice>();
  std::vector<float> out(3 * 16 * 16);
  for (const size_t size : {0UL, 3UL, 100UL, record.bytes.size() / 2}) {
    Record broken = record;
    broken.bytes.resize(size);
    // Evaluation, which needs all of it.
    TransformOptions whole = options;
    whole.training = false;
    const auto expected = transforms().get("imagenet")(whole)->apply(broken, {}, out.data());
    const auto found = make_device_transform(whole, device)->apply(broken, {}, out.data());
    ASSERT_FALSE(expected.ok());
    ASSERT_FALSE(found.ok());
    EXPECT_STREQ(found.error().what(), expected.error().what());
  }
  EXPECT_EQ(device->jpegs, 0);
}

// Batches of the device: the same samples in the same order, for any threads, and after a resume.
TEST(EmulatedImageDevice, ThePipelinesBatchesAreTheCpus) {
  const auto dataset = std::make_shared<JpegDataset>();
  TransformOptions options = plain(9, 12);
  PipelineOptions pipeline{.batch_size = 5, .height = 9, .width = 12, .worker_threads = 1, .seed = 9};
  Pipeline cpu(dataset, transforms().get("imagenet")(options), pipeline);
  std::vector<Batch> expected;
  for (int b = 0; b < 5; ++b) expected.push_back(cpu.next()[0]);
  pipeline.worker_threads = 3;
  for (const int first : {0, 2}) {
    const auto device = std::make_shared<EmulatedDevice>(at::kHalf);
    Pipeline there(dataset, make_device_transform(options, device), pipeline);
    if (first > 0) there.seek(expected[static_cast<size_t>(first) - 1].after);
    for (size_t b = static_cast<size_t>(first); b < expected.size(); ++b) {
      const Batch batch = there.next()[0];
      EXPECT_EQ(batch.images().scalar_type(), at::kHalf);
      EXPECT_TRUE(batch.images().is_contiguous(at::MemoryFormat::ChannelsLast));
      EXPECT_TRUE(batch.labels().equal(expected[b].labels()));
      EXPECT_EQ(batch.after, expected[b].after);
      EXPECT_LE(batch.images().to(at::kFloat).sub(expected[b].images()).abs().max().item<float>(), 2e-3F);
    }
  }
}

TEST(EmulatedImageDevice, WhatOnlyTheCpuDoesIsRefused) {
  const auto device = std::make_shared<EmulatedDevice>();
  const auto refused = [&](const std::function<void(TransformOptions&)>& change) {
    TransformOptions options = plain(16, 16);
    change(options);
    try {
      make_device_transform(options, device);
    } catch (const core::Error& error) {
      return error.code() == core::ErrorCode::kUnsupported;
    }
    return false;
  };
  EXPECT_FALSE(refused([](TransformOptions&) {}));
  EXPECT_TRUE(refused([](TransformOptions& options) { options.distortions = true; }));
  EXPECT_TRUE(refused([](TransformOptions& options) { options.auto_augment.policy = AutoAugmentPolicy::kRand; }));
  EXPECT_TRUE(refused([](TransformOptions& options) { options.random_erasing.probability = 0.5F; }));
  EXPECT_TRUE(refused([](TransformOptions& options) { options.resize_method = "crop"; }));
  EXPECT_TRUE(refused([](TransformOptions& options) { options.scaled_decode = true; }));
  EXPECT_FALSE(refused([](TransformOptions& options) {
    options.distortions = true;
    options.training = false;
  }));
}

}  // namespace
}  // namespace trainyard::data::emulated_image_device_test
