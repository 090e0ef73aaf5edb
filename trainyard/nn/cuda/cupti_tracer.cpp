// CUPTI's activity API. It has one client in a process, and its callbacks carry no data of their own: so there is one
// session here, which they find in a global variable.
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>
#include <optional>
#include <ratio>
#include <type_traits>

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/cuda/check_cuda.h"
#include "trainyard/nn/cuda/cupti_reader.h"
#include "trainyard/nn/cuda/tracers.h"

namespace trainyard::nn::cuda {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20, kBufferAlignment = 8;
constexpr int kMostBuffers = 64;          // that CUPTI holds at once; without another one it drops records
constexpr size_t kMostRecords = 1 << 20;  // of a step, read out of the buffers: 200 MB at most
constexpr std::array kKinds = {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                               CUPTI_ACTIVITY_KIND_RUNTIME,  // the calls, without which there are no correlations
                               CUPTI_ACTIVITY_KIND_DRIVER,
                               CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                               CUPTI_ACTIVITY_KIND_MEMCPY,
                               CUPTI_ACTIVITY_KIND_MEMCPY2,
                               CUPTI_ACTIVITY_KIND_MEMSET};

// The callbacks may come from any thread, and with locks of CUPTI's held: so nothing of CUPTI's is called within
// `mutex`, and a buffer is handed out without it.
struct Session {
  std::atomic<int> buffers = 0;  // that CUPTI holds
  std::mutex mutex;
  std::optional<CuptiReader> reader;  // while a tracer lives
};

Session& session() {
  static auto* const one = new Session;  // CUPTI's thread may outlive what ends with the process
  return *one;
}

void lose(int64_t records) {
  const std::lock_guard lock(session().mutex);
  if (session().reader) session().reader->join.lose(records);
}

void read(const CUpti_Activity& record) {
  const std::lock_guard lock(session().mutex);
  if (session().reader) session().reader->add(record);
}

void CUPTIAPI buffer_requested(uint8_t** buffer, size_t* size, size_t* most_records) {
  *buffer = nullptr;
  *size = 0;
  *most_records = 0;  // as many as it holds
  if (session().buffers.fetch_add(1) < kMostBuffers) {
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  }
  if (*buffer == nullptr) {
    --session().buffers;
  } else {
    *size = kBufferBytes;
  }
}

int64_t dropped(CUcontext context, uint32_t stream) {
  size_t count = 0;
  return cuptiActivityGetNumDroppedRecords(context, stream, &count) == CUPTI_SUCCESS ? static_cast<int64_t>(count) : 0;
}

void CUPTIAPI buffer_completed(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid_bytes) {
  CUpti_Activity* record = nullptr;
  while (valid_bytes > 0 && cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    try {
      read(*record);
    } catch (const std::bad_alloc&) {  // which must not reach CUPTI
      lose(1);
    }
  }
  lose(dropped(context, stream));
  std::free(buffer);
  --session().buffers;
}

uint64_t CUPTIAPI now() {
  static_assert(std::is_same_v<TraceClock::period, std::nano>);
  return static_cast<uint64_t>(TraceClock::now().time_since_epoch().count());
}

void CUPTIAPI no_callback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

std::string remedy_for(CUptiResult result) {
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
      return "have an administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0";
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      return "run without another profiler or debugger";
    default:
      return "";
  }
}

void check_cupti(CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS) return;
  const char* name = nullptr;
  cuptiGetResultString(result, &name);
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = "CUPTI cannot trace the GPU",
                     .where = call,
                     .actual = name == nullptr ? fmt::format("error {}", static_cast<int>(result)) : name,
                     .remedy = remedy_for(result)});
}

void check_version() {
  uint32_t version = 0;
  check_cupti(cuptiGetVersion(&version), "cuptiGetVersion");
  if (version >= CUPTI_API_VERSION) return;
  throw core::Error(core::ErrorCode::kUnsupported, {.problem = "CUPTI cannot trace the GPU",
                                                    .where = "libcupti.so.13",
                                                    .expected = fmt::format("version {}", CUPTI_API_VERSION),
                                                    .actual = fmt::format("{}", version)});
}

class CuptiTracer : public DeviceTracer {
 public:
  CuptiTracer() {
    check_version();
    // Nothing is called back: whoever subscribes is CUPTI's only client.
    check_cupti(cuptiSubscribe(&subscriber_, no_callback, nullptr), "cuptiSubscribe");
    try {
      start();
    } catch (...) {
      stop();
      throw;
    }
  }
  ~CuptiTracer() override { stop(); }
  CuptiTracer(const CuptiTracer&) = delete;
  CuptiTracer& operator=(const CuptiTracer&) = delete;

  std::string method() const override { return "CUPTI"; }

  uint64_t begin_span() override {
    const uint64_t span = next_span();
    check_cupti(cuptiActivityPushExternalCorrelationId(kSpanKind, span), "cuptiActivityPushExternalCorrelationId");
    return span;
  }

  void end_span() noexcept override { cuptiActivityPopExternalCorrelationId(kSpanKind, nullptr); }

  DeviceRecords collect() override {
    // CUPTI hands over only what has ended, on all streams.
    for (c10::DeviceIndex device = 0; device < c10::cuda::device_count(); ++device) {
      if (!c10::cuda::hasPrimaryContext(device)) continue;
      const c10::cuda::CUDAGuard guard(device);
      core::cuda::check_cuda(cudaDeviceSynchronize(), "waiting for a traced step");
    }
    check_cupti(cuptiActivityFlushAll(0), "cuptiActivityFlushAll");
    lose(dropped(nullptr, 0));
    const std::lock_guard lock(session().mutex);
    return session().reader->join.take();
  }

 private:
  void start() {
    {
      const std::lock_guard lock(session().mutex);
      session().reader.emplace(kMostRecords);
    }
    check_cupti(cuptiActivityRegisterCallbacks(buffer_requested, buffer_completed), "cuptiActivityRegisterCallbacks");
    check_cupti(cuptiActivityRegisterTimestampCallback(now), "cuptiActivityRegisterTimestampCallback");
    for (; enabled_ < kKinds.size(); ++enabled_) {
      check_cupti(cuptiActivityEnable(kKinds[enabled_]), "cuptiActivityEnable");
    }
  }

  void stop() noexcept {
    while (enabled_ > 0) cuptiActivityDisable(kKinds[--enabled_]);
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    cuptiUnsubscribe(subscriber_);
    const std::lock_guard lock(session().mutex);
    session().reader.reset();
  }

  CUpti_SubscriberHandle subscriber_ = nullptr;
  size_t enabled_ = 0;  // of kKinds
};

}  // namespace

std::unique_ptr<DeviceTracer> open_cupti_tracer() {
  return std::make_unique<CuptiTracer>();
}

}  // namespace trainyard::nn::cuda
