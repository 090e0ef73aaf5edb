// Images on an NVIDIA GPU: each of the input's threads has a stream and a decoder of its own while it makes a sample,
// and waits for it, so that a batch is complete when its last sample is, as on the CPU.
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/cuda/check_cuda.h"
#include "trainyard/core/cuda/libtorch.h"
#include "trainyard/data/cuda/kernels.h"
#include "trainyard/data/cuda/nvjpeg_decoder.h"
#include "trainyard/data/device/image_device.h"

namespace trainyard::data::cuda {
namespace {

using core::Error;
using core::ErrorCode;

core::cuda::Element element_of(at::ScalarType dtype) {
  const std::optional<core::cuda::Element> element = core::cuda::element_of(dtype);
  if (element) return *element;
  throw Error(ErrorCode::kUnsupported, {.problem = "a GPU samples no images of this dtype",
                                        .expected = "float, half or bfloat16",
                                        .actual = toString(dtype)});
}

// Bytes put one behind the other in pinned memory, and where they began.
class Packed {
 public:
  explicit Packed(size_t bytes)
      : host_(at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte).pinned_memory(true))) {}
  template <typename T>
  size_t add(const std::vector<T>& values) {
    const size_t begin = used_;
    std::memcpy(host_.mutable_data_ptr<uint8_t>() + begin, values.data(), values.size() * sizeof(T));
    used_ += values.size() * sizeof(T);
    return begin;
  }
  const at::Tensor& host() const { return host_; }

 private:
  at::Tensor host_;
  size_t used_ = 0;
};

// A stream that is no one else's. LibTorch's pool gives the same 32 out again and again: with as many input threads,
// one of them would work on the stream of the steps, also while a step is captured there.
class OwnStream {
 public:
  explicit OwnStream(c10::DeviceIndex device) : raw_(make()), stream_(c10::cuda::getStreamFromExternal(raw_, device)) {}
  ~OwnStream() { cudaStreamDestroy(raw_); }  // fails when the process ends, and does no harm then
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  const c10::cuda::CUDAStream& get() const { return stream_; }

 private:
  static cudaStream_t make() {
    cudaStream_t raw = nullptr;
    core::cuda::check_cuda(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking), "a stream for decoding images");
    return raw;
  }

  cudaStream_t raw_;
  c10::cuda::CUDAStream stream_;
};

class CudaImageDevice : public ImageDevice {
 public:
  explicit CudaImageDevice(const ImageDeviceOptions& options)
      : device_(c10::kCUDA, static_cast<c10::DeviceIndex>(options.index)),
        dtype_(options.dtype),
        element_(element_of(options.dtype)) {
    const c10::cuda::CUDAGuard guard(device_.index());
    handles_ = std::make_shared<NvjpegHandles>();
  }

  c10::Device device() const override { return device_; }
  at::ScalarType dtype() const override { return dtype_; }

  std::string sample_jpeg(std::span<const std::byte> file, ImageSize size, const PixelSampling& sampling,
                          void* out) override {
    return with_worker([&](Worker& worker) -> std::string {
      const at::Tensor pixels = on_device(int64_t{3} * size.height * size.width);
      auto* const place = pixels.mutable_data_ptr<uint8_t>();
      const std::string why_not = worker.decoder.decode(file, size, place, worker.stream);
      if (why_not.empty()) sample(place, int64_t{3} * size.width, sampling, out, worker);
      worker.stream.synchronize();  // of what nvJPEG gave up, too: it may read the file
      return why_not;
    });
  }

  void sample_pixels(const ImageView& pixels, const PixelSampling& sampling, void* out) override {
    with_worker([&](Worker& worker) -> std::string {
      const int64_t row_bytes = int64_t{3} * pixels.width;
      const at::Tensor host = at::empty({pixels.height, row_bytes}, at::TensorOptions(at::kByte).pinned_memory(true));
      for (int y = 0; y < pixels.height; ++y) {
        std::memcpy(host.mutable_data_ptr<uint8_t>() + y * row_bytes, pixels.pixels + y * pixels.stride,
                    static_cast<size_t>(row_bytes));
      }
      const at::Tensor there = on_device(host.numel());
      there.copy_(host.view(-1), /*non_blocking=*/true);
      sample(there.const_data_ptr<uint8_t>(), row_bytes, sampling, out, worker);
      worker.stream.synchronize();
      return "";
    });
  }

 private:
  struct Worker {
    Worker(c10::DeviceIndex device, std::shared_ptr<const NvjpegHandles> handles)
        : own(device), stream(own.get()), decoder(std::move(handles)) {}
    OwnStream own;
    c10::cuda::CUDAStream stream;
    NvjpegDecoder decoder;
  };

  // Work of the current stream.
  at::Tensor on_device(int64_t bytes) const { return at::empty({bytes}, at::TensorOptions(at::kByte).device(device_)); }

  // Calls work(worker), whose stream is the current one, with one that no other thread has.
  template <typename Work>
  std::string with_worker(const Work& work) {
    const c10::cuda::CUDAGuard guard(device_.index());
    std::unique_ptr<Worker> worker = take();
    std::string result;
    try {
      const c10::cuda::CUDAStreamGuard own(worker->stream.unwrap());
      result = work(*worker);
    } catch (const c10::OutOfMemoryError& error) {
      throw Error(ErrorCode::kNoSpace,
                  {.problem = "the GPU has no memory left for decoding an image",
                   .actual = error.what_without_backtrace(),
                   .remedy = "use a smaller batch, fewer --datasets_num_private_threads, or decode "
                             "on the CPU"});
    }
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(worker));
    return result;
  }

  std::unique_ptr<Worker> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Worker> worker = std::move(idle_.back());
        idle_.pop_back();
        return worker;
      }
    }
    return std::make_unique<Worker>(device_.index(), handles_);
  }

  void sample(const uint8_t* pixels, int64_t row_bytes, const PixelSampling& sampling, void* out,
              const Worker& worker) const {
    const Axis &rows = sampling.rows, &columns = sampling.columns;
    Packed packed((rows.first.size() + columns.first.size()) * sizeof(int) +
                  (rows.taps.size() + columns.taps.size()) * sizeof(Tap));
    const size_t row_begins = packed.add(rows.first), column_begins = packed.add(columns.first);
    const size_t row_taps = packed.add(rows.taps), column_taps = packed.add(columns.taps);
    const at::Tensor there = on_device(packed.host().numel());
    there.copy_(packed.host(), /*non_blocking=*/true);
    const uint8_t* const base = there.const_data_ptr<uint8_t>();
    SampledImage image{.pixels = pixels,
                       .row_bytes = row_bytes,
                       .row_begins = reinterpret_cast<const int*>(base + row_begins),
                       .column_begins = reinterpret_cast<const int*>(base + column_begins),
                       .row_taps = reinterpret_cast<const Tap*>(base + row_taps),
                       .column_taps = reinterpret_cast<const Tap*>(base + column_taps),
                       .height = static_cast<int>(rows.first.size()) - 1,
                       .width = static_cast<int>(columns.first.size()) - 1,
                       .clip = sampling.clip};
    std::memcpy(image.scale, sampling.scale.data(), sizeof image.scale);
    std::memcpy(image.shift, sampling.shift.data(), sizeof image.shift);
    sample_image(image, element_, out, worker.stream);
  }

  const c10::Device device_;
  const at::ScalarType dtype_;
  const core::cuda::Element element_;
  std::shared_ptr<const NvjpegHandles> handles_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Worker>> idle_;
};

const core::Registration<ImageDeviceFactory> kCuda(image_devices(), "cuda", [](const ImageDeviceOptions& options) {
  return std::make_shared<CudaImageDevice>(options);
});

}  // namespace
}  // namespace trainyard::data::cuda
