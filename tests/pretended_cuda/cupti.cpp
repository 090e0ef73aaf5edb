// Stands in for CUPTI's activity API: records of what the pretended runtime is handed and has done, in the real
// header's structs, through buffers of the client's. PRETENDED_CUPTI_REFUSES=1: it may not be used, as where the driver
// keeps it to administrators; PRETENDED_CUPTI_BUFFER_BYTES=<n>: of each buffer it fills n bytes.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/pretended_cuda/pretended_cuda.h"
#include <cupti.h>

namespace {

using trainyard::pretended_cuda::Work;

size_t setting(const char* name, size_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Cupti {
  std::recursive_mutex mutex;  // what is called back calls back
  bool subscribed = false;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  CUpti_TimestampCallbackFunc now = nullptr;
  std::set<CUpti_ActivityKind> kinds;
  uint32_t calls = 0;
  uint8_t* buffer = nullptr;
  size_t bytes = 0, used = 0, dropped = 0;
};
Cupti& cupti() {
  static auto* one = new Cupti;
  return *one;
}
thread_local std::map<CUpti_ExternalCorrelationKind, std::vector<uint64_t>> spans;

size_t size_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      return sizeof(CUpti_ActivityExternalCorrelation);
    default:
      return sizeof(CUpti_ActivityAPI);
  }
}

void deliver(Cupti& own) {
  if (own.buffer != nullptr) own.complete(nullptr, 0, own.buffer, own.bytes, own.used);
  own.buffer = nullptr;
  own.used = 0;
}

template <typename Record>
void emit(Cupti& own, const Record& record) {
  if (!own.kinds.contains(record.kind)) return;
  if (own.buffer != nullptr && own.used + sizeof record > own.bytes) deliver(own);
  if (own.buffer == nullptr) {
    size_t most_records = 0;
    own.request(&own.buffer, &own.bytes, &most_records);
    own.bytes = std::min(own.bytes, setting("PRETENDED_CUPTI_BUFFER_BYTES", own.bytes));
  }
  if (own.buffer == nullptr) {
    ++own.dropped;
    return;
  }
  std::memcpy(own.buffer + own.used, &record, sizeof record);
  own.used += sizeof record;
}

template <typename Record>
Record timed(CUpti_ActivityKind kind, uint32_t call, uint32_t stream, uint64_t begin, uint64_t end) {
  Record record{};
  record.kind = kind;
  record.correlationId = call;
  record.streamId = stream;
  record.start = begin;
  record.end = end;
  return record;
}

void done(const Work& work, uint32_t call, uint64_t begin, uint64_t end, const std::string& name) {
  Cupti& own = cupti();
  if (work.kind == Work::Kind::kKernel) {
    static std::set<std::string> names;  // which must stay
    auto kernel = timed<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, call, work.stream, begin, end);
    kernel.name = names.insert(name).first->c_str();
    emit(own, kernel);
  } else if (work.kind == Work::Kind::kCopy) {
    auto copy = timed<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY, call, work.stream, begin, end);
    const auto host =
        static_cast<uint8_t>(work.pinned ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED : CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE);
    copy.srcKind = work.from_host ? host : static_cast<uint8_t>(CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
    copy.dstKind = work.to_host ? host : static_cast<uint8_t>(CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
    copy.bytes = work.bytes;
    emit(own, copy);
  } else {
    auto fill = timed<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET, call, work.stream, begin, end);
    fill.bytes = work.bytes;
    emit(own, fill);
  }
}

// The device's clock passes a microsecond with each piece of work, and is never behind the host's.
std::function<void()> watch(const Work& work) {
  Cupti& own = cupti();
  const std::lock_guard lock(own.mutex);
  const uint32_t call = ++own.calls;
  for (const auto& [kind, stack] : spans) {
    if (stack.empty()) continue;
    CUpti_ActivityExternalCorrelation span{};
    span.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    span.externalKind = kind;
    span.externalId = stack.back();
    span.correlationId = call;
    emit(own, span);
  }
  CUpti_ActivityAPI api{};
  api.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  api.start = api.end = own.now();
  api.correlationId = call;
  emit(own, api);
  return [work, call, name = std::string(work.name)] {
    Cupti& there = cupti();
    const std::lock_guard there_lock(there.mutex);
    static uint64_t clock = 0;
    clock = std::max(clock, there.now());
    done(work, call, clock, clock + 1000, name);
    clock += 1000;
  };
}

CUptiResult change(CUpti_ActivityKind kind, bool enable) {
  Cupti& own = cupti();
  const std::lock_guard lock(own.mutex);
  if (own.request == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
  if (enable) {
    own.kinds.insert(kind);
  } else {
    own.kinds.erase(kind);
  }
  return CUPTI_SUCCESS;
}

}  // namespace

extern "C" {

CUptiResult cuptiGetVersion(uint32_t* version) {
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  *text = result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR";
  return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc, void*) {
  Cupti& own = cupti();
  const std::lock_guard lock(own.mutex);
  if (setting("PRETENDED_CUPTI_REFUSES", 0) != 0) return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  if (own.subscribed) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  own.subscribed = true;
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&own);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  pretended_cuda_watch(nullptr);
  Cupti& own = cupti();
  const std::lock_guard lock(own.mutex);
  own.subscribed = false;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  const std::lock_guard lock(cupti().mutex);
  cupti().request = request;
  cupti().complete = complete;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc now) {
  {
    const std::lock_guard lock(cupti().mutex);
    if (!cupti().kinds.empty()) return CUPTI_ERROR_INVALID_OPERATION;
    cupti().now = now;
  }
  pretended_cuda_watch(watch);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  return change(kind, true);
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  return change(kind, false);
}
CUptiResult cuptiActivityFlushAll(uint32_t) {
  const std::lock_guard lock(cupti().mutex);
  deliver(cupti());
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t bytes, CUpti_Activity** record) {
  uint8_t* next = *record == nullptr ? buffer : reinterpret_cast<uint8_t*>(*record) + size_of((*record)->kind);
  if (next >= buffer + bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  const std::lock_guard lock(cupti().mutex);
  *dropped = cupti().dropped;
  cupti().dropped = 0;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
  spans[kind].push_back(id);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t* id) {
  if (spans[kind].empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  if (id != nullptr) *id = spans[kind].back();
  spans[kind].pop_back();
  return CUPTI_SUCCESS;
}
}
