#include "trainyard/parallel/collectives/plan/collective_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/parallel/collectives/plan/rank_reduction.h"

namespace trainyard::parallel {
namespace {

using core::Error;
using core::ErrorCode;

CollectiveCall call_of(CollectiveCall::Kind kind, int argument, const at::Tensor& tensor) {
  CollectiveCall call{.kind = kind, .argument = argument};
  if (!tensor.defined()) {
    call.problem = "an undefined tensor";
    return call;
  }
  call.type = tensor.scalar_type();
  call.shape = tensor.sizes().vec();
  call.tensor = tensor.detach();
  if (!tensor.device().is_cpu()) call.problem = "a tensor that is not on the CPU";
  if (!tensor.is_contiguous()) call.problem = "a tensor that is not contiguous";
  return call;
}

}  // namespace

CollectiveCall CollectiveCall::all_reduce(const at::Tensor& tensor, core::ReduceOp op) {
  CollectiveCall call = call_of(Kind::kAllReduce, static_cast<int>(op), tensor);
  if (call.problem.empty() && !can_reduce(call.type, op)) call.problem = "a dtype that cannot be reduced so";
  return call;
}

CollectiveCall CollectiveCall::broadcast(const at::Tensor& tensor, int root, int size) {
  CollectiveCall call = call_of(Kind::kBroadcast, root, tensor);
  if (call.problem.empty() && (root < 0 || root >= size)) call.problem = "a root that is no rank";
  return call;
}

CollectiveCall CollectiveCall::all_gather(const at::Tensor& tensor) {
  return call_of(Kind::kAllGather, 0, tensor);
}

bool agree(const CollectiveCall& a, const CollectiveCall& b) {
  return a.kind == b.kind && a.argument == b.argument && a.type == b.type && a.shape == b.shape;
}

std::string describe(const CollectiveCall& call) {
  static constexpr const char* kOperations[] = {"sum", "mean", "max", "min"};
  const auto tensor = [&]() -> std::string {
    if (call.type == at::ScalarType::Undefined) return "no tensor";
    return fmt::format("{} [{}]", c10::toString(call.type), fmt::join(call.shape, ", "));
  };
  switch (call.kind) {
    case CollectiveCall::Kind::kAllReduce:
      return fmt::format("all_reduce({}) of {}", kOperations[call.argument], tensor());
    case CollectiveCall::Kind::kBroadcast:
      return fmt::format("broadcast(root {}) of {}", call.argument, tensor());
    case CollectiveCall::Kind::kAllGather:
      return "all_gather of " + tensor();
    case CollectiveCall::Kind::kBarrier:
      return "barrier";
  }
  return "";
}

Error unusable_call(const CollectiveCall& call, int rank) {
  return {ErrorCode::kInvalidArgument,
          {.problem = "a collective cannot be done",
           .where = fmt::format("rank {}, {}", rank, describe(call)),
           .actual = call.problem}};
}

Error different_calls(const CollectiveCall& first, int first_rank, const CollectiveCall& other, int other_rank) {
  return {ErrorCode::kInvalidArgument,
          {.problem = "ranks called different collectives",
           .expected = fmt::format("{} on all ranks as on rank {}", describe(first), first_rank),
           .actual = fmt::format("{} on rank {}", describe(other), other_rank),
           .remedy = "all ranks must make the same calls in the same order"}};
}

std::optional<Error> disagreement(const std::vector<CollectiveCall>& calls, int first_rank) {
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!calls[i].problem.empty()) return unusable_call(calls[i], first_rank + static_cast<int>(i));
  }
  for (size_t i = 1; i < calls.size(); ++i) {
    if (!agree(calls[0], calls[i])) {
      return different_calls(calls[0], first_rank, calls[i], first_rank + static_cast<int>(i));
    }
  }
  return std::nullopt;
}

}  // namespace trainyard::parallel
