// Variable updates between processes whose values parameter servers hold (parallel/servers):
//
//   parameter_server        replicas of one process read one copy of the values, which its first replica reads from
//   (with servers)          the servers behind each update
//   distributed_replicated  each replica has a copy, as tf_cnn_benchmarks has it
//   staged_parameter_server parameter_server with the values of one update before
//   asynchronous            each process at its own pace
//
// The mode of the servers decides: with it the names parameter_server, staged_parameter_server and asynchronous are
// one, but that staged_parameter_server is one update late in kAsynchronous, too.
//
// reduce() turns the gradients of this process's replicas into their mean or sum; update() pushes it. What the chief
// (worker 0) saves are the servers' values and slots, under the names of all modes, so that any mode loads them.
#pragma once

#include <cstdint>
#include <memory>

#include "trainyard/parallel/variable_update/variable_update.h"

namespace trainyard::parallel {

// Whether replicas of a process read one copy of the values, or each its own.
enum class ServedCopies : uint8_t { kOneForAll, kOneEach };
// Which of the servers' values a step computes with where workers run at their own pace. Otherwise the mode says it.
enum class ServedValues : uint8_t { kNewest, kOfOneUpdateBefore };

// Makes the update of options.servers, in the mode of these. Its allocate() waits for servers and workers. Throws
// kUnsupported for accelerators, masks and compressed gradients, kInvalidArgument where the servers are told of other
// replicas or another reduction.
std::unique_ptr<VariableUpdate> make_served_update(const VariableUpdateOptions& options, ServedCopies copies,
                                                   ServedValues values = ServedValues::kNewest);

}  // namespace trainyard::parallel
