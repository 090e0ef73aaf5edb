#include "trainyard/nn/cuda/cupti_reader.h"

#include <cstddef>
#include <utility>

#include <fmt/format.h>

namespace trainyard::nn::cuda {
namespace {

static_assert(CUPTI_API_VERSION >= 130000, "the records below are CUDA 13's");

// A newer library writes newer records, which so far have only grown at their ends. So what is read here has been in
// its place since the versions before these.
#define SAME_PLACE(newer, older, member) static_assert(offsetof(newer, member) == offsetof(older, member))
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel9, registersPerThread);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel9, start);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel9, streamId);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel9, gridX);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel9, dynamicSharedMemory);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel9, correlationId);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel9, name);
SAME_PLACE(CUpti_ActivityMemcpy6, CUpti_ActivityMemcpy5, dstKind);
SAME_PLACE(CUpti_ActivityMemcpy6, CUpti_ActivityMemcpy5, bytes);
SAME_PLACE(CUpti_ActivityMemcpy6, CUpti_ActivityMemcpy5, correlationId);
SAME_PLACE(CUpti_ActivityMemcpyPtoP4, CUpti_ActivityMemcpyPtoP3, dstDeviceId);
SAME_PLACE(CUpti_ActivityMemcpyPtoP4, CUpti_ActivityMemcpyPtoP3, correlationId);
SAME_PLACE(CUpti_ActivityMemset4, CUpti_ActivityMemset3, bytes);
SAME_PLACE(CUpti_ActivityMemset4, CUpti_ActivityMemset3, correlationId);
#undef SAME_PLACE

TraceClock::time_point at(uint64_t nanoseconds) {
  return TraceClock::time_point(std::chrono::nanoseconds(nanoseconds));
}

const char* memory_name(uint8_t kind) {
  switch (static_cast<CUpti_ActivityMemoryKind>(kind)) {
    case CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE:
      return "pageable";
    case CUPTI_ACTIVITY_MEMORY_KIND_PINNED:
      return "pinned";
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE:
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC:
      return "device";
    case CUPTI_ACTIVITY_MEMORY_KIND_ARRAY:
      return "array";
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED:
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC:
      return "managed";
    default:
      return "unknown";
  }
}

template <typename Record>
DeviceActivity activity_of(const Record& record, DeviceActivity::Kind kind, std::string name) {
  return {.kind = kind,
          .name = std::move(name),
          .device = record.deviceId,
          .stream = record.streamId,
          .begin = at(record.start),
          .end = at(record.end)};
}

// CUPTI gives records whose times it could not take a begin and an end of zero.
void add_timed(ActivityJoin& join, DeviceActivity activity, uint64_t call) {
  if (activity.begin == at(0)) {
    join.lose(1);
  } else {
    join.add(std::move(activity), call);
  }
}

template <typename Record>
const Record& as(const CUpti_Activity& record) {
  return reinterpret_cast<const Record&>(record);
}

}  // namespace

const std::string& CuptiReader::name_of(const char* symbol) {
  const std::string text = symbol == nullptr ? "kernel without a name" : symbol;
  const auto known = names_.find(text);
  return known != names_.end() ? known->second : names_.emplace(text, kernel_name(text)).first->second;
}

void CuptiReader::add(const CUpti_Activity& record) {
  using Kind = DeviceActivity::Kind;
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = as<CUpti_ActivityKernel10>(record);
      DeviceActivity activity = activity_of(kernel, Kind::kKernel, name_of(kernel.name));
      activity.grid = {kernel.gridX, kernel.gridY, kernel.gridZ};
      activity.block = {kernel.blockX, kernel.blockY, kernel.blockZ};
      activity.registers = kernel.registersPerThread;
      activity.shared_bytes = int64_t{kernel.staticSharedMemory} + kernel.dynamicSharedMemory;
      return add_timed(join, std::move(activity), kernel.correlationId);
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& copy = as<CUpti_ActivityMemcpy6>(record);
      DeviceActivity activity = activity_of(
          copy, Kind::kCopy, fmt::format("copy {} to {}", memory_name(copy.srcKind), memory_name(copy.dstKind)));
      activity.bytes = static_cast<int64_t>(copy.bytes);
      return add_timed(join, std::move(activity), copy.correlationId);
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
      const auto& copy = as<CUpti_ActivityMemcpyPtoP4>(record);
      const uint32_t from = copy.srcDeviceId, to = copy.dstDeviceId;
      DeviceActivity activity = activity_of(copy, Kind::kCopy, fmt::format("copy device {} to device {}", from, to));
      activity.bytes = static_cast<int64_t>(copy.bytes);
      return add_timed(join, std::move(activity), copy.correlationId);
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& fill = as<CUpti_ActivityMemset4>(record);
      DeviceActivity activity = activity_of(fill, Kind::kFill, "fill");
      activity.bytes = static_cast<int64_t>(fill.bytes);
      return add_timed(join, std::move(activity), fill.correlationId);
    }
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: {
      const auto& call = as<CUpti_ActivityAPI>(record);
      return join.add_call(call.correlationId, at(call.start));
    }
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& span = as<CUpti_ActivityExternalCorrelation>(record);
      if (span.externalKind == kSpanKind) join.add_span(span.correlationId, span.externalId);
      return;
    }
    default:
      return;
  }
}

}  // namespace trainyard::nn::cuda
