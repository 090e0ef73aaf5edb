#include "trainyard/parallel/variable_update/variable_update.h"

#include <algorithm>
#include <functional>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/accelerator.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

VariableUpdateRegistry& variable_updates() {
  static VariableUpdateRegistry registry("variable update");
  return registry;
}

void VariableUpdateOptions::validate() const {
  if (replicas < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "training needs replicas", .expected = "at least 1", .actual = std::to_string(replicas)});
  }
  if (!accelerators.empty() && static_cast<int>(accelerators.size()) != replicas) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "each replica needs an accelerator, or none has one",
                                              .expected = std::to_string(replicas),
                                              .actual = std::to_string(accelerators.size())});
  }
  if (make_optimizers.empty() || !std::all_of(make_optimizers.begin(), make_optimizers.end(), std::identity())) {
    throw Error(ErrorCode::kInvalidArgument, "a variable update needs a way to make each of its optimizers");
  }
  if (deadline.count() <= 0) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "the deadline for replicas is not usable",
                                              .expected = "more than 0 ms",
                                              .actual = std::to_string(deadline.count())});
  }
  if (bucket_bytes < 1) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "gradients cannot leave in buckets of this size",
                                              .expected = "at least 1 byte",
                                              .actual = std::to_string(bucket_bytes)});
  }
  packing.validate();
  compression.validate();
  if (compression.is_default()) return;
  if (!packing.is_default()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "gradients that are compressed cannot be packed",
                                              .expected = "one of them",
                                              .actual = "both",
                                              .remedy = "leave gradient_repacking and agg_small_grads_max_bytes out, "
                                                        "and give one algorithm for all sizes"});
  }
}

}  // namespace trainyard::parallel
