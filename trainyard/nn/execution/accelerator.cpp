#include "trainyard/nn/execution/accelerator.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/base/error.h"

namespace trainyard::nn {

using core::Error;
using core::ErrorCode;

void AcceleratorOptions::validate() const {
  if (index < 0) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "there is no such device", .actual = std::to_string(index)});
  }
  const int most = managed_memory ? 64 : 1;  // how much the host really has is known where it is opened
  if (!(memory_fraction >= 0 && memory_fraction <= most)) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "the part of the device's memory is not usable",
                                              .expected = fmt::format("a number in [0, {}]", most),
                                              .actual = fmt::format("{}", memory_fraction)});
  }
}

AcceleratorScope use_all(std::span<const std::shared_ptr<Accelerator>> accelerators) {
  AcceleratorScope all;
  for (size_t i = accelerators.size(); i-- > 0;) all.add(accelerators[i]->use());
  return all;
}

AcceleratorRegistry& accelerators() {
  static auto* registry = new AcceleratorRegistry("accelerator");
  return *registry;
}

int accelerator_count(const std::string& kind) {
  return accelerators().has(kind) ? accelerators().get(kind).count() : 0;
}

std::shared_ptr<Accelerator> open_accelerator(const std::string& kind, const AcceleratorOptions& options) {
  options.validate();
  if (!accelerators().has(kind)) {
    std::string how = "a build that has it";
    for (const core::OptionalPart& part : core::build_info().optional_parts) {
      if (part.name == "CUDA" && kind == "cuda") how = part.how_to_get;
    }
    throw Error(ErrorCode::kUnsupported,
                {.problem = "this build has no GPU support", .remedy = "it needs " + how + "; or use the CPU"});
  }
  const AcceleratorKind& entry = accelerators().get(kind);
  const int count = entry.count();
  if (count == 0) {
    throw Error(ErrorCode::kUnsupported, {.problem = "this machine has no GPU that can be used",
                                          .remedy = "look at what nvidia-smi says; or use the CPU"});
  }
  if (options.index >= count) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "there is no such GPU",
                                              .expected = fmt::format("0 to {}", count - 1),
                                              .actual = std::to_string(options.index)});
  }
  return entry.open(options);
}

}  // namespace trainyard::nn
