// Selects all-reduce algorithms by measuring them: where nothing was asked for, and for --all_reduce_spec=auto
// (docs/design/collectives.md).
//
// Algorithms that add in the order of the ranks give the same bits, so which of them runs is a matter of speed alone:
//
//   shared_memory         the exchange without messages (shared_memory/), where all ranks are on one machine
//   chain, chain/64K, chain/1M    algorithms/chain.cpp in chunks of 256 KiB, 64 KiB or 1 MiB
//   shuffle#n             algorithms/shuffle.cpp, ranks in their order, with n places
//
// Other algorithms add in other orders: those of an all_reduce_spec. They are chosen on request only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/parallel/collectives/all_reduce_choices.h"
#include "trainyard/parallel/collectives/plan/plan.h"
#include "trainyard/parallel/collectives/process_engine.h"

namespace trainyard::parallel {

// Which algorithms are measured.
enum class AllReduceOrder {
  kOfRanks,  // those that give the bits of the default algorithm
  kAny       // and those of an all_reduce_spec
};

struct AllReduceMeasuring {
  AllReduceOrder order = AllReduceOrder::kOfRanks;
  std::optional<at::ScalarType> wire{};  // AllReduceOptions::wire; with kAny
  std::string transport{};               // what carries messages, such as "Open MPI v4.1.4": part of the description
  std::string machine{};                 // the name of this machine, as for make_process_communicators()
  // After these seconds nothing more is begun: larger tensors take the algorithm of the largest that was measured.
  double seconds = 0.5;
  // The bytes of the tensors, in ascending order. The gradients that are reduced at a time, one bucket of at least 4
  // MiB or all of a model's, are larger than all but the last; statistics of batch norms are smaller.
  std::vector<int64_t> sizes = {4 << 10, 64 << 10, 1 << 20, 16 << 20};
  // An algorithm that took so many times as long as the fastest is not measured with larger tensors, from 1 MiB on.
  double give_up_ratio = 3;
};

// Names and times of the algorithms that the layout allows. The same on all processes.
struct MeasuredAllReduces {
  std::vector<std::string> in_rank_order;  // algorithms, the preferred ones first
  std::vector<std::string> other;          // of kAny
  std::vector<AllReduceTime> times;        // by size, then by algorithm
};

// Collective over the processes: measures the algorithms of an exchange between `replicas` replicas of this process
// and those of the others. Throws what the exchange throws.
MeasuredAllReduces measure_all_reduces(const std::shared_ptr<ProcessEngine>& engine, int replicas,
                                       const AllReduceMeasuring& measuring);

// Returns the choice by these times. Its spec is:
// - of kOfRanks, "shared_memory" or a spec of the other names above. Messages replace the shared memory only where they
//   are faster over all sizes, and an algorithm the one before it in `in_rank_order` where it takes at most 0.9 times
//   as long.
// - of kAny, an all_reduce_spec, or "default" where the algorithms in the order of the ranks are as fast.
// Returns nothing without times.
std::optional<AllReduceChoice> choose_by_times(const MeasuredAllReduces& measured, AllReduceOrder order);

// One size at which a choice is slower than another algorithm.
struct SlowAllReduce {
  int64_t bytes = 0;
  std::string chosen, fastest;
  double chosen_seconds = 0, fastest_seconds = 0;
};
// Returns the sizes at which the algorithm of `spec` took more than `ratio` times as long as the fastest one that the
// spec may name. An algorithm without a time at a size is passed over there.
std::vector<SlowAllReduce> slow_sizes(const std::string& spec, AllReduceOrder order,
                                      const std::vector<AllReduceTime>& times, double ratio = 1.5);

// Collective over the processes: returns one line that says what is measured: order, ranks by machine, transport, type
// on the wire, processors. Two measurements with the same description are of the same
// kind.
std::string describe_measuring(const std::shared_ptr<ProcessEngine>& engine, int replicas,
                               const AllReduceMeasuring& measuring);

// Returns the order of a description.
AllReduceOrder order_of(const std::string& description);

struct AgreedAllReduce {
  std::string description;
  std::string spec;           // as choose_by_times() returns it
  bool measured_now = false;  // rather than kept
};
// Collective over the processes: returns rank 0's kept choice, and without one measures, chooses and keeps it on rank
// 0. A kept choice that this layout, this order or this version does not allow is measured again. The result is the
// same on all processes; `kept` is used on rank 0 alone.
AgreedAllReduce agree_on_all_reduce(const std::shared_ptr<ProcessEngine>& engine, int replicas,
                                    const AllReduceMeasuring& measuring, AllReduceChoices& kept);

// Returns communicators as make_process_communicators() does, by a choice of kOfRanks. Throws kInvalidArgument for a
// spec that is none.
std::vector<std::unique_ptr<core::Communicator>> make_measured_communicators(
    const std::shared_ptr<ProcessEngine>& engine, int replicas, std::chrono::milliseconds deadline,
    const std::string& spec, const std::string& machine = "");

}  // namespace trainyard::parallel
