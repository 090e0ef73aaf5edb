// nvJPEG and the input's kernel on a GPU against the CPU's transform: pixels within one level for 999 of 1000.
#include <set>
#include <thread>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/device/device_transform.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::cuda_image_device_test {
namespace {

// Null, and the test skipped, without a GPU; a GPU without nvJPEG fails.
std::shared_ptr<ImageDevice> device_of(at::ScalarType dtype) {
  if (c10::cuda::device_count() == 0) return nullptr;
  return open_image_device("cuda", {.dtype = dtype});
}

TransformOptions in_levels(int64_t side) {
  TransformOptions options{.height = side, .width = side, .distortions = false};
  options.normalization = Normalization::minus_mean({0, 0, 0});
  return options;
}

double part_within_a_level(const TransformOptions& options, const std::shared_ptr<ImageDevice>& device,
                           const Record& record, const SampleKey& key) {
  at::Tensor expected = at::empty({3, options.height, options.width}, at::kFloat);
  transforms().get("imagenet")(options)->apply(record, key, expected.mutable_data_ptr()).value();
  const at::Tensor found =
      at::empty({options.height, options.width, 3}, at::TensorOptions(device->dtype()).device(device->device()));
  make_device_transform(options, device)->apply(record, key, found.mutable_data_ptr()).value();
  const at::Tensor apart = found.cpu().to(at::kFloat).permute({2, 0, 1}).sub(expected).abs();
  return apart.le(1.001).to(at::kDouble).mean().item<double>();
}

TEST(CudaImageDevice, PixelsAreTheCpusWithinALevel) {
  const auto device = device_of(at::kFloat);
  if (device == nullptr) GTEST_SKIP() << core::skip::kNeedsGpu;
  for (const ChromaSubsampling chroma : {ChromaSubsampling::k444, ChromaSubsampling::k420}) {
    for (const auto& [height, width] : {std::pair{375, 500}, {333, 251}, {64, 64}, {17, 9}}) {
      const Record record{
          .bytes = encode_jpeg(smooth_image(height, width), 90, chroma), .label = 1, .where = "generated"};
      for (const bool training : {true, false}) {
        TransformOptions options = in_levels(224);
        options.training = training;
        for (int64_t sample = 0; sample < 4; ++sample) {
          EXPECT_GE(part_within_a_level(options, device, record, {.seed = 1, .sample = sample}), 0.999)
              << height << " x " << width << (chroma == ChromaSubsampling::k420 ? ", 4:2:0" : ", 4:4:4");
        }
      }
    }
  }
}

TEST(CudaImageDevice, TheSameFileGivesTheSameBits) {
  const auto device = device_of(at::kHalf);
  if (device == nullptr) GTEST_SKIP() << core::skip::kNeedsGpu;
  const TransformOptions options{.height = 64, .width = 64, .distortions = false};
  const auto transform = make_device_transform(options, device);
  const Record record{.bytes = encode_jpeg(noisy_image(200, 300)), .label = 1, .where = "generated"};
  at::Tensor first;
  for (int time = 0; time < 8; ++time) {
    const at::Tensor out = at::empty({64, 64, 3}, at::TensorOptions(at::kHalf).device(device->device()));
    transform->apply(record, {.seed = 2}, out.mutable_data_ptr()).value();
    if (!first.defined()) first = out;
    EXPECT_TRUE(out.equal(first));
  }
}

// Steps are captured on a stream of LibTorch's pool, whichever it is: no image may be decoded on one of those.
TEST(CudaImageDevice, DecodesWhileAllStreamsOfThePoolAreCaptured) {
  const auto device = device_of(at::kFloat);
  if (device == nullptr) GTEST_SKIP() << core::skip::kNeedsGpu;
  const Record record{.bytes = encode_jpeg(noisy_image(64, 64)), .label = 1, .where = "generated"};
  const at::Tensor out = at::empty({64, 64, 3}, at::TensorOptions(at::kFloat).device(device->device()));
  std::set<cudaStream_t> pool;
  while (pool.insert(c10::cuda::getStreamFromPool()).second) continue;
  for (cudaStream_t const stream : pool) {
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  }
  std::thread([&] {
    const auto transform = make_device_transform(in_levels(64), device);
    EXPECT_NO_THROW(transform->apply(record, {.seed = 1}, out.mutable_data_ptr()).value());
  }).join();
  for (cudaStream_t const stream : pool) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    cudaGraphDestroy(graph);
  }
}

TEST(CudaImageDevice, DamagedFilesAreTheCpusToJudge) {
  const auto device = device_of(at::kFloat);
  if (device == nullptr) GTEST_SKIP() << core::skip::kNeedsGpu;
  TransformOptions options = in_levels(32);
  options.training = false;
  Record record{.bytes = encode_jpeg(noisy_image(80, 80)), .label = 1, .where = "generated"};
  record.bytes.resize(record.bytes.size() / 2);
  const at::Tensor out = at::empty({32, 32, 3}, at::TensorOptions(at::kFloat).device(device->device()));
  EXPECT_FALSE(make_device_transform(options, device)->apply(record, {}, out.mutable_data_ptr()).ok());
}

}  // namespace
}  // namespace trainyard::data::cuda_image_device_test
