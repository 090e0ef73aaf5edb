// Describes the collective that a rank calls, so that ranks which call different ones get an error that says so.
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
  std::string problem;  // why this rank's arguments are invalid; empty: they are valid

  // Returns the call with a detached alias of the tensor, without autograd. The tensor must be on the CPU and
  // contiguous.
  static CollectiveCall all_reduce(const at::Tensor& tensor, core::ReduceOp op);
  // `size` is the number of ranks.
  static CollectiveCall broadcast(const at::Tensor& tensor, int root, int size);
  static CollectiveCall all_gather(const at::Tensor& tensor);
};

// Returns true when two ranks call the same: everything but the tensors is equal.
bool agree(const CollectiveCall& a, const CollectiveCall& b);
// Returns the call as messages name it: "all_reduce(mean) of Float [1000]".
std::string describe(const CollectiveCall& call);

// Returns the kInvalidArgument error of a call that is invalid.
core::Error unusable_call(const CollectiveCall& call, int rank);
// Returns the kInvalidArgument error of two ranks whose calls differ.
core::Error different_calls(const CollectiveCall& first, int first_rank, const CollectiveCall& other, int other_rank);
// Returns the error that all ranks get when these calls, of `first_rank` and the ranks after it, cannot be done
// together.
std::optional<core::Error> disagreement(const std::vector<CollectiveCall>& calls, int first_rank = 0);

}  // namespace trainyard::parallel
