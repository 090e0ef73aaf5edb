// Collectives between replicas that run on threads of one process.
//
//   auto communicators = parallel::make_thread_communicators(2);
//   core::Thread replica({.name = "replica 1"},
//                        [&] { communicators[1]->all_reduce(gradient_1, core::ReduceOp::kMean); });
//   communicators[0]->all_reduce(gradient_0, core::ReduceOp::kMean);
//
// Every rank reduces a slice of the elements for all, so the work is divided among the threads and each element has the
// same bits on every rank. CPU tensors only.
//
// When ranks call different collectives, or pass different shapes, dtypes, operations or roots, or an unusable tensor,
// all get kInvalidArgument, which names two of them. After that the communicator can still be used; after a deadline it
// cannot.
#pragma once

#include <memory>
#include <vector>

#include "trainyard/core/base/communicator.h"

namespace trainyard::parallel {

// Returns a communicator for each rank, in rank order. A communicator may be used by any thread, one at a time. Throws
// kInvalidArgument for size < 1.
std::vector<std::unique_ptr<core::Communicator>> make_thread_communicators(int size);

}  // namespace trainyard::parallel
