// Selects all-reduce algorithms by measuring them: where nothing was asked for, and for --all_reduce_spec=auto
// (docs/design/collectives.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/parallel/collectives/all_reduce_candidates.h"
#include "trainyard/parallel/collectives/all_reduce_choices.h"
#include "trainyard/parallel/collectives/all_reduce_selection.h"
#include "trainyard/parallel/collectives/process_engine.h"

namespace trainyard::parallel {

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
  double give_up_ratio = kGiveUpRatio;
};

// Collective over the processes: measures the algorithms of an exchange between `replicas` replicas of this process
// and those of the others. Throws what the exchange throws.
MeasuredAllReduces measure_all_reduces(const std::shared_ptr<ProcessEngine>& engine, int replicas,
                                       const AllReduceMeasuring& measuring);

// Collective over the processes: returns one line that says what is measured: order, ranks by machine, transport, type
// on the wire, processors. Two measurements with the same description are of the same kind.
std::string describe_measuring(const std::shared_ptr<ProcessEngine>& engine, int replicas,
                               const AllReduceMeasuring& measuring);

// Returns the order of a description.
AllReduceOrder order_of(const std::string& description);

struct AgreedAllReduce {
  std::string description;
  std::string spec;                             // as choose_by_times() returns it
  bool was_kept = false, measured_now = false;  // neither: the measurement took too long, and `spec` is the rule's
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
