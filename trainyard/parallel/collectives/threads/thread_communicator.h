// Collectives between replicas that run on threads of one process.
//
//   auto communicators = parallel::make_thread_communicators(2);
//   core::Thread replica({.name = "replica 1"},
//                        [&] { communicators[1]->all_reduce(gradient_1, core::ReduceOp::kMean); });
//   communicators[0]->all_reduce(gradient_0, core::ReduceOp::kMean);
//
// Every rank reduces a slice of the elements for all, so the work is spread over the threads and each element has the
// same bits on every rank. CPU tensors only.
//
// Ranks that call different collectives, or with different shapes, dtypes, operations or roots, all get
// kInvalidArgument that names two of them; so do they when one rank's tensor cannot be used. After that the
// communicator can still be used; after a deadline it cannot.
#pragma once

#include <memory>
#include <vector>

#include "trainyard/core/base/communicator.h"

namespace trainyard::parallel {

// Returns one for each rank, in rank order. Any thread may use one of them, one at a time. Throws kInvalidArgument for
// size < 1.
std::vector<std::unique_ptr<core::Communicator>> make_thread_communicators(int size);

}  // namespace trainyard::parallel
