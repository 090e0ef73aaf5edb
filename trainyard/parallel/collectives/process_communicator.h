// Collectives between the replicas of several processes: a communicator for each replica here, whose rank counts all
// replicas, in the order of the processes. The order of every sum is that of the global ranks, however they are spread
// over processes (chain_operation.h). CPU tensors only.
//
// Ranks that call different collectives, or with different shapes, dtypes, operations or roots, all get
// kInvalidArgument that names two of them; so do they when one rank's tensor cannot be used. After any error the
// communicators cannot be used. abort(), deadlines and errors reach the other processes through PeerWatch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainyard/core/base/communicator.h"
#include "trainyard/parallel/collectives/process_engine.h"

namespace trainyard::parallel {

// Returns one for each of `replicas` replicas of this process; others may have other numbers of replicas. Any thread
// may use one of them, one at a time. Several groups may be made and used at once, from different threads and in
// different orders on different processes; making them is collective, in one order. Throws kInvalidArgument for
// replicas < 1.
std::vector<std::unique_ptr<core::Communicator>> make_process_communicators(
    const std::shared_ptr<ProcessEngine>& engine, int replicas,
    std::chrono::milliseconds deadline = std::chrono::minutes(10));

// Returns one between the processes themselves.
std::unique_ptr<core::Communicator> make_communicator_of_processes(
    const std::shared_ptr<ProcessEngine>& engine, std::chrono::milliseconds deadline = std::chrono::minutes(10));

// Collective: returns rank 0's text, which may hold any bytes.
std::string text_of_first(core::Communicator& communicator, const std::string& text);
// Collective: returns the machine's name of each rank, 255 bytes of it at most.
std::vector<std::string> machines_of(core::Communicator& communicator);

}  // namespace trainyard::parallel
