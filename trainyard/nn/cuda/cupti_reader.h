// Converts CUPTI's activity records to device activities.
#pragma once

#include <string>
#include <unordered_map>

#include <cupti.h>

#include "trainyard/nn/execution/device_trace.h"

namespace trainyard::nn::cuda {

// The stack of external correlation ids that spans are pushed on.
inline constexpr CUpti_ExternalCorrelationKind kSpanKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

// CUPTI's times are taken as nanoseconds of TraceClock, which cupti_tracer.cpp tells CUPTI to use.
class CuptiReader {
 public:
  explicit CuptiReader(size_t limit) : join(limit) {}
  // Adds the record of a kernel, copy, fill, call of the runtime or the driver, or span; others are ignored.
  void add(const CUpti_Activity& record);

  ActivityJoin join;

 private:
  const std::string& name_of(const char* symbol);
  std::unordered_map<std::string, std::string> names_;  // by symbol
};

}  // namespace trainyard::nn::cuda
