// NVIDIA GPUs as accelerators: a stream for work and one for copies, LibTorch's caching allocators, CUDA graphs.
#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>

#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/cuda/check_cuda.h"
#include "trainyard/nn/cuda/float_precision.h"
#include "trainyard/nn/cuda/managed_memory.h"
#include "trainyard/nn/cuda/tracers.h"
#include "trainyard/nn/execution/accelerator.h"

namespace trainyard::nn::cuda {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

// Left to others when all memory is taken at once: cuDNN's and cuBLAS's handles, the context, recorded steps.
constexpr int64_t kReserve = int64_t{1} << 30;
constexpr int64_t kPage = int64_t{2} << 20;  // LibTorch's allocator takes large blocks in multiples of this

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

int64_t tensor_bytes(c10::DeviceIndex device) {
  return caching::getDeviceStats(device).allocated_bytes[kAll].current;
}

class CudaRecordedWork : public RecordedWork {
 public:
  void replay() override { graph.replay(); }
  at::cuda::CUDAGraph graph;
};

struct Streams {
  c10::cuda::CUDAStream compute, copy;
  const c10::cuda::CUDAStream& of(Lane lane) const { return lane == Lane::kCompute ? compute : copy; }
};

class CudaMark : public Mark {
 public:
  explicit CudaMark(const Streams& streams) : streams_(streams) {}
  void set(Lane lane) override { event_.record(streams_.of(lane)); }
  void hold_back(Lane lane) override { event_.block(streams_.of(lane)); }

 private:
  Streams streams_;
  c10::cuda::CUDAEvent event_;
};

// The two pools never give out the same stream, whatever else takes streams from them.
Streams take_streams(c10::DeviceIndex device) {
  at::globalContext().lazyInitDevice(c10::kCUDA);
  return {c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device),
          c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device)};
}

class CudaAccelerator : public Accelerator {
 public:
  explicit CudaAccelerator(const AcceleratorOptions& options)
      : device_(c10::kCUDA, static_cast<c10::DeviceIndex>(options.index)),
        streams_(take_streams(device_.index())),
        limit_(limit_of(options)) {
    allow_tf32(options.tf32);
    if (options.managed_memory) {
      managed_.emplace(device_.index(), limit_);
    } else if (options.memory_fraction > 0) {
      caching::get()->setMemoryFraction(options.memory_fraction, device_.index());
    }
    // The allocator keeps it forever.
    caching::get()->attachOutOfMemoryObserver(
        [refused = refused_, own = device_.index()](int64_t device, size_t asked, size_t, size_t) {
          if (device != own) return;
          refused->asked = static_cast<int64_t>(asked);
          refused->used = tensor_bytes(own);
        });
    if (options.take_all_memory) take_all_memory();
  }

  c10::Device device() const override { return device_; }
  std::string name() const override {
    cudaDeviceProp properties{};
    core::cuda::check_cuda(cudaGetDeviceProperties(&properties, device_.index()), "name of the GPU");
    return properties.name;
  }
  AcceleratorScope use() override { return AcceleratorScope::by<c10::cuda::CUDAStreamGuard>(stream().unwrap()); }
  void wait() override { stream().synchronize(); }
  bool idle() override { return stream().query(); }

  void end_step() override {
    c10::cuda::CUDAEvent& event = ends_[static_cast<size_t>(step_++ % kAhead)];
    if (event.isCreated()) event.synchronize();
    event.record(stream());
  }

  std::unique_ptr<Mark> make_mark() override { return std::make_unique<CudaMark>(streams_); }

  at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType dtype) override {
    return at::empty(sizes, at::TensorOptions(dtype).pinned_memory(true));
  }

  // LibTorch notes with a pinned block which stream reads it, and hands the block out again only when that has
  // happened.
  void send(const at::Tensor& host, const at::Tensor& target) override {
    const c10::cuda::CUDAStreamGuard guard(streams_.copy.unwrap());
    target.copy_(host.is_pinned() ? host : host.pin_memory(), /*non_blocking=*/true);
  }

  void will_read(const at::Tensor& tensor) override { tensor.record_stream(stream().unwrap()); }

  std::unique_ptr<RecordedWork> record(const std::function<void()>& work) override {
    if (managed_) throw core::Error(core::ErrorCode::kUnsupported, "a step cannot be captured in unified memory");
    const c10::cuda::CUDAStreamGuard guard(stream().unwrap());
    stream().synchronize();
    // A recording has memory of its own: memory cached from earlier steps would be held in addition to it forever.
    caching::emptyCache();
    auto recorded = std::make_unique<CudaRecordedWork>();
    const c10::MempoolId_t pool = at::cuda::graph_pool_handle();
    std::exception_ptr error;
    try {
      // Other threads (input, logging) may call CUDA while this one records.
      recorded->graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
      work();
    } catch (...) {
      error = std::current_exception();
    }
    try {
      recorded->graph.capture_end();
    } catch (...) {
      // A capture that a failure has broken cannot be ended well: the failure is the news.
      if (!error) error = std::current_exception();
    }
    if (!error) return recorded;
    cudaGetLastError();  // a broken capture's error is not the next call's
    end_allocation(pool);
    end_drawing();
    std::rethrow_exception(error);
  }

  std::unique_ptr<DeviceTracer> trace() override {
    wait();
    try {
      return open_cupti_tracer();
    } catch (const core::Error& error) {
      core::log::warning("no kernels are traced, layers are timed by events: {}", error.what());
      return open_event_tracer(stream());
    }
  }

  DeviceMemory memory() override {
    const auto [free, total] = free_and_total();
    const auto statistics = caching::getDeviceStats(device_.index());
    return {.total = total,
            .limit = limit_,
            .free = managed_ ? managed_->free_bytes() : free,
            .held = statistics.reserved_bytes[kAll].current,
            .used = statistics.allocated_bytes[kAll].current};
  }

  Refused refused() override { return {.asked = refused_->asked, .used = refused_->used}; }

 private:
  static constexpr int64_t kAhead = 2;
  const c10::cuda::CUDAStream& stream() const { return streams_.compute; }

  // Bytes.
  struct FreeAndTotal {
    int64_t free, total;
  };
  FreeAndTotal free_and_total() const {
    const c10::cuda::CUDAGuard guard(device_.index());
    size_t free = 0, total = 0;
    core::cuda::check_cuda(cudaMemGetInfo(&free, &total), "memory of the GPU");
    return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
  }

  // Managed memory beyond what is free moves pages out of the GPU all the time: only who asks for it gets it.
  int64_t limit_of(const AcceleratorOptions& options) const {
    const auto [free, total] = free_and_total();
    if (options.memory_fraction > 0) return static_cast<int64_t>(options.memory_fraction * static_cast<double>(total));
    return options.managed_memory ? std::max<int64_t>(free - kReserve, 0) : total;
  }

  // LibTorch leaves its allocators as they are during a capture when that cannot be ended: the graph, which is about to
  // go, would be asked at each allocation. Throws nothing: who has stopped asking says so by an error.
  void end_allocation(c10::MempoolId_t pool) {
    try {
      caching::endAllocateToPool(device_.index(), pool);
      caching::releasePool(device_.index(), pool);
    } catch (const c10::Error&) {
    }
    try {
      at::getHostAllocator(c10::kCUDA)->end_allocate_to_pool(pool);
      at::getHostAllocator(c10::kCUDA)->release_pool(pool);
    } catch (const c10::Error&) {
    }
  }

  // The same for its random numbers, which would be drawn for that graph: the generator continues from its position
  // with a state that no capture has registered.
  void end_drawing() {
    at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(device_.index());
    const std::lock_guard lock(generator.mutex());
    generator.graphsafe_set_state(generator.clone());
  }

  // One block as large as what is left, given back to the allocator, which cuts later tensors from it.
  void take_all_memory() {
    const DeviceMemory before = memory();
    const int64_t bytes = managed_ ? before.free : std::min(before.limit - before.held, before.free - kReserve);
    // The allocator rounds large blocks up, and would ask for more than it may have.
    const int64_t whole_pages = bytes / kPage * kPage;
    if (whole_pages <= 0) return;
    const c10::cuda::CUDAStreamGuard guard(stream().unwrap());
    caching::raw_delete(caching::raw_alloc_with_stream(static_cast<size_t>(whole_pages), stream()));
    core::log::info("{} took {} of its memory at once", name(), gibibytes(whole_pages));
  }

  c10::Device device_;
  Streams streams_;
  int64_t limit_;  // bytes
  std::optional<ManagedMemory> managed_;
  struct LastRefused {
    std::atomic<int64_t> asked = 0, used = 0;
  };
  std::shared_ptr<LastRefused> refused_ = std::make_shared<LastRefused>();
  std::array<c10::cuda::CUDAEvent, kAhead> ends_;
  int64_t step_ = 0;
};

const core::Registration<AcceleratorKind> kCuda(
    accelerators(), "cuda",
    AcceleratorKind{.count = [] { return static_cast<int>(c10::cuda::device_count()); },
                    .open = [](const AcceleratorOptions& options) -> std::shared_ptr<Accelerator> {
                      return std::make_shared<CudaAccelerator>(options);
                    }});

}  // namespace
}  // namespace trainyard::nn::cuda
