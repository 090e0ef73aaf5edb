// What one rank asks of a collective, so that ranks that ask for different things find it out and say so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/base/error.h"

namespace trainyard::parallel {

struct CollectiveCall {
  enum class Kind { kAllReduce, kBroadcast, kAllGather, kBarrier };
  Kind kind = Kind::kBarrier;
  int argument = 0;  // the operation or the root
  at::ScalarType type = at::ScalarType::Undefined;
  std::vector<int64_t> shape;
  at::Tensor tensor;    // holds the memory while peers read it
  std::string problem;  // why this rank's own arguments cannot be used; empty: they can

  // Returns a detached alias of the tensor in it: autograd has no business here. It must be on the CPU and contiguous.
  static CollectiveCall all_reduce(const at::Tensor& tensor, core::ReduceOp op);
  // `size`: the number of ranks.
  static CollectiveCall broadcast(const at::Tensor& tensor, int root, int size);
  static CollectiveCall all_gather(const at::Tensor& tensor);
};

// Returns true when two ranks ask for the same: all but the tensors is equal.
bool agree(const CollectiveCall& a, const CollectiveCall& b);
// Returns the call as messages name it: "all_reduce(mean) of Float [1000]".
std::string describe(const CollectiveCall& call);

// Returns the kInvalidArgument for a call that cannot be done.
core::Error unusable_call(const CollectiveCall& call, int rank);
// Returns the kInvalidArgument for two ranks whose calls differ.
core::Error different_calls(const CollectiveCall& first, int first_rank, const CollectiveCall& other, int other_rank);
// Returns the error that all ranks get for these calls, which are those of `first_rank` and the ranks behind it, if
// they cannot be done together.
std::optional<core::Error> disagreement(const std::vector<CollectiveCall>& calls, int first_rank = 0);

}  // namespace trainyard::parallel
