// How the gradients of a training are all-reduced on CPUs: which algorithm for which size, and the type in which
// numbers travel. It is what tf_cnn_benchmarks' flags all_reduce_spec, hierarchical_copy, network_topology and
// compact_gradient_transfer select.
//
//   const AllReduceOptions options{.spec = "pscpu:32k:xring#2", .wire = at::kBFloat16};
//   auto threads = make_thread_communicators(4, options.choice());
//   auto processes = make_process_communicators(engine, replicas, deadline, options.choice());
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <c10/core/ScalarType.h>

#include "trainyard/parallel/collectives/all_reduce_spec.h"
#include "trainyard/parallel/collectives/plan/algorithm.h"

namespace trainyard::parallel {

// Which replicas are the roots of hierarchical_copy's two groups.
enum class NetworkTopology : uint8_t { kDgx1, kGcpV100 };
// Returns "dgx1" or "gcp_v100".
std::string_view network_topology_name(NetworkTopology topology);
// Returns the topology of a name. Throws kNotFound, with the known names.
NetworkTopology network_topology(std::string_view name);

struct AllReduceOptions {
  // An all_reduce_spec (all_reduce_spec.h), or kAutoAllReduceSpec. Empty: hierarchical_copy, or the default algorithm
  // of choose_algorithm().
  std::string spec{};
  bool hierarchical_copy = false;
  NetworkTopology topology = NetworkTopology::kDgx1;  // of hierarchical_copy
  // The type in which the numbers of messages travel when they are wider: bfloat16 or half. Sums are computed in float
  // all the same, and the result is rounded to this type, so that all ranks have the same bits. Partial sums that do
  // not leave a process are not rounded. Empty: numbers travel in the type of partial sums.
  std::optional<at::ScalarType> wire{};

  // Throws kInvalidArgument for a spec that is not well formed, for a spec together with hierarchical_copy, and for a
  // wire type that is none.
  void validate() const;
  // Returns true for kAutoAllReduceSpec: processes measure which algorithms are the fastest (measured_all_reduce.h).
  bool is_auto() const { return spec == kAutoAllReduceSpec; }
  // Returns true when choice() is choose_algorithm() itself: the members above have their defaults, or is_auto().
  bool is_default() const { return (spec.empty() || is_auto()) && !hierarchical_copy && !wire; }
  // Returns true when a range of the spec is for GPUs: "nccl" or "nccl/...". Throws as validate() does.
  bool uses_nccl() const;

  // Returns the choice of an algorithm by the bytes of the tensor: the first range whose limit is not below them.
  // Collectives other than all-reduces get the default algorithm. With kAutoAllReduceSpec it is the choice of an empty
  // spec, since nothing was measured. Throws as validate() does, and kUnsupported, naming
  // the algorithms of CPUs, when uses_nccl().
  //
  // What a layout does not allow is an error of making the communicators, on all ranks alike, kInvalidArgument: "only 2
  // devices, but group_size=3" (more shards than places), "HierarchicalCopy only supports eight devices in gcp_v100".
  AlgorithmChoice choice() const;
};

}  // namespace trainyard::parallel
