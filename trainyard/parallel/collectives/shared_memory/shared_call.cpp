#include "trainyard/parallel/collectives/shared_memory/shared_call.h"

#include <algorithm>
#include <cstring>

namespace trainyard::parallel {

void SharedCall::set(const CollectiveCall& of, int64_t at) {
  kind = static_cast<int32_t>(of.kind);
  argument = of.argument;
  type = static_cast<int32_t>(of.type);
  offset = at;
  const bool fits_here = of.shape.size() <= kMostDimensions;
  dimensions = fits_here ? static_cast<int32_t>(of.shape.size()) : 0;
  std::copy_n(of.shape.begin(), dimensions, shape);
  const std::string text = fits_here ? of.problem : "a tensor of more than 16 dimensions";
  const size_t length = std::min(text.size(), kText - 1);
  std::copy_n(text.begin(), length, problem);
  problem[length] = 0;
}

CollectiveCall SharedCall::get() const {
  CollectiveCall call{
      .kind = static_cast<CollectiveCall::Kind>(kind), .argument = argument, .type = static_cast<at::ScalarType>(type)};
  call.shape.assign(shape, shape + std::clamp(dimensions, 0, kMostDimensions));
  call.problem.assign(problem, strnlen(problem, kText));
  return call;
}

bool SharedCall::fits(const SharedCall& other) const {
  return kind == other.kind && argument == other.argument && type == other.type && dimensions == other.dimensions &&
         problem[0] == 0 && other.problem[0] == 0 && std::equal(shape, shape + dimensions, other.shape);
}

}  // namespace trainyard::parallel
