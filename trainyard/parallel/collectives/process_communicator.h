// Collectives between the replicas of several processes: a communicator for each replica of this process. Ranks count
// all replicas, in the order of the processes. Without a choice of algorithms, every sum is in the order of the global
// ranks, however they are distributed over processes (algorithms/chain.cpp). CPU tensors only. Processes of one machine
// share memory then (shared_memory/, docs/design/shared_memory.md), others exchange messages.
//
// When ranks call different collectives, or pass different shapes, dtypes, operations or roots, or an unusable tensor,
// all get kInvalidArgument, which names two of them. After any error the communicators cannot be used. abort(),
// deadlines and errors reach the other processes through PeerWatch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainyard/core/base/communicator.h"
#include "trainyard/parallel/collectives/algorithms/algorithm_choice.h"
#include "trainyard/parallel/collectives/process_engine.h"

namespace trainyard::parallel {

enum class HostExchange {
  kSharedMemory,  // where all processes are on one machine and the system permits it, otherwise messages
  kMessages       // always messages
};

// Returns a communicator for each of `replicas` replicas of this process; other processes may have other numbers. A
// communicator may be used by any thread, one at a time. Several groups may be made and used at once, from different
// threads and in different orders on different processes; making them is collective, in one order. Throws
// kInvalidArgument for replicas < 1, and what `choose` throws for an all-reduce of no elements, which is asked once to
// see whether the algorithms fit the layout. `choose` returns the algorithm of a collective: choose_algorithm, or
// AllReduceOptions::choice(), which is always an exchange of messages. It and `host` are the same on all processes.
// `machine`: the name of this machine, by which algorithms of two levels group the processes; empty: the system's name.
std::vector<std::unique_ptr<core::Communicator>> make_process_communicators(
    const std::shared_ptr<ProcessEngine>& engine, int replicas,
    std::chrono::milliseconds deadline = std::chrono::minutes(10), const AlgorithmChoice& choose = choose_algorithm,
    HostExchange host = HostExchange::kSharedMemory, const std::string& machine = "");

// Returns a communicator between the processes themselves.
std::unique_ptr<core::Communicator> make_communicator_of_processes(
    const std::shared_ptr<ProcessEngine>& engine, std::chrono::milliseconds deadline = std::chrono::minutes(10));

// Collective: returns rank 0's text, which may hold any bytes.
std::string text_of_first(core::Communicator& communicator, const std::string& text);
// Collective: returns the text of each rank, 255 bytes of it at most, up to a zero.
std::vector<std::string> gather_texts(core::Communicator& communicator, const std::string& text);
// Collective: returns how replicas are distributed. `processes`: between the processes; `replicas`: of this process;
// `machine`: as above.
RankLayout gather_layout(core::Communicator& processes, int replicas, const std::string& machine = "");
// Collective: returns the machine's name of each rank, 255 bytes of it at most.
std::vector<std::string> machines_of(core::Communicator& communicator);

}  // namespace trainyard::parallel
