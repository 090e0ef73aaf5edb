// Communicators of gradients by --all_reduce_spec=auto. Algorithms add in different orders, so the choice is part of
// the run: it is in the run's KernelChoices, and so in its checkpoints. A resumed run reduces by the saved choice,
// however fast its algorithms are on the machine where it continues.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/parallel/collectives/process_engine.h"

namespace trainyard::parallel {

struct AutomaticAllReduce {
  std::string in_rank_order;             // the agreed choice of AllReduceOrder::kOfRanks
  std::string spec;                      // that of AllReduceOrder::kAny: an all_reduce_spec, or "default"
  std::optional<at::ScalarType> wire{};  // AllReduceOptions::wire
  std::shared_ptr<nn::KernelChoices> choices{};
};

// Collective: returns communicators as make_process_communicators() does. All-reduces look for the run's choice for
// this number of ranks, and add `spec` where the run has none. "default" reduces as without a spec. A choice that
// cannot be used is an error of the all-reduce, kCorruptData, on all ranks alike.
//
// Buckets and their order are the same for each choice, because some algorithms' bits depend on them: so the result
// says that it progresses in the background, also where it does not.
std::vector<std::unique_ptr<core::Communicator>> make_automatic_communicators(
    const std::shared_ptr<ProcessEngine>& engine, int replicas, std::chrono::milliseconds deadline,
    const AutomaticAllReduce& automatic, const std::string& machine = "");

}  // namespace trainyard::parallel
