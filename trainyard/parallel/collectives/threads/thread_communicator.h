// Collectives between replicas that run on threads of one process.
//
//   auto communicators = parallel::make_thread_communicators(2);
//   core::Thread replica({.name = "replica 1"},
//                        [&] { communicators[1]->all_reduce(gradient_1, core::ReduceOp::kMean); });
//   communicators[0]->all_reduce(gradient_0, core::ReduceOp::kMean);
//
// Every rank reduces a slice of the elements for all, so the work is divided among the threads and each element has the
// same bits on every rank. With a choice of algorithms (AllReduceOptions::choice()), all-reduces are exchanges of
// messages between the threads instead, as between processes of one replica each on one machine. CPU tensors only.
//
// When ranks call different collectives, or pass different shapes, dtypes, operations or roots, or an unusable tensor,
// all get kInvalidArgument, which names two of them. After that the communicator can still be used; after a deadline it
// cannot.
#pragma once

#include <memory>
#include <vector>

#include "trainyard/core/base/communicator.h"
#include "trainyard/parallel/collectives/plan/algorithm.h"

namespace trainyard::parallel {

// Returns a communicator for each rank, in rank order. A communicator may be used by any thread, one at a time. Throws
// kInvalidArgument for size < 1, and what `choose` throws for an all-reduce of no elements, which is asked once to see
// whether the algorithms fit this number of ranks. `choose`: the algorithm of an all-reduce, the same on all ranks.
// Empty: the ranks divide the work.
std::vector<std::unique_ptr<core::Communicator>> make_thread_communicators(int size,
                                                                           const AlgorithmChoice& choose = {});

}  // namespace trainyard::parallel
