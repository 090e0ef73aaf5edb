#include "trainyard/parallel/simulation/link_model.h"

#include <cmath>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {

void LinkModel::validate() const {
  if (!(latency_seconds >= 0) || std::isinf(latency_seconds)) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "a link has an impossible latency",
                                                          .expected = "seconds, 0 or more",
                                                          .actual = fmt::format("{}", latency_seconds)});
  }
  if (!(bytes_per_second > 0)) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "a link has an impossible bandwidth",
                                                          .expected = "bytes a second, more than 0",
                                                          .actual = fmt::format("{}", bytes_per_second)});
  }
}

}  // namespace trainyard::parallel
