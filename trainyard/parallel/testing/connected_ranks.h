// Ranks of processes that are threads, whose messages lie in memory.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/parallel/testing/memory_transport.h"

namespace trainyard::parallel {

using Communicators = std::vector<std::unique_ptr<core::Communicator>>;

constexpr std::chrono::milliseconds kLongDeadline{60'000};

// Engines for processes that find each other.
inline std::vector<std::shared_ptr<ProcessEngine>> make_engines(int processes) {
  std::vector<std::shared_ptr<ProcessEngine>> engines;
  for (const auto& open : make_memory_transports(processes)) {
    engines.push_back(ProcessEngine::start(open, kLongDeadline));
  }
  return engines;
}

// Calls `work` on a thread for each process. An error of a process fails the test.
inline void on_processes(size_t processes, const std::function<void(size_t process)>& work) {
  std::vector<core::Thread> threads;
  for (size_t p = 0; p < processes; ++p) {
    threads.emplace_back(core::ThreadOptions{.name = "process"}, [&work, p] {
      try {
        work(p);
      } catch (const core::Error& error) {
        ADD_FAILURE() << "process " << p << ": " << error.what();
      }
    });
  }
  for (core::Thread& thread : threads) thread.join();
}

// Makes the communicators of all processes by `make`, in the order of their ranks.
inline Communicators connect_by(size_t processes, const std::function<Communicators(size_t process)>& make) {
  std::vector<Communicators> of_process(processes);
  on_processes(processes, [&](size_t p) { of_process[p] = make(p); });
  Communicators all;
  for (Communicators& some : of_process) {
    for (auto& communicator : some) all.push_back(std::move(communicator));
  }
  return all;
}

// Makes the communicators of all processes, `replicas` of each, in the order of their ranks. `choose`: the algorithm of
// messages. `machines`: the name of each process's machine; empty: all are on this one.
inline Communicators connect(const std::vector<std::shared_ptr<ProcessEngine>>& engines,
                             const std::vector<int>& replicas, std::chrono::milliseconds deadline = kLongDeadline,
                             const AlgorithmChoice& choose = choose_algorithm,
                             HostExchange host = HostExchange::kMessages,
                             const std::vector<std::string>& machines = {}) {
  std::vector<Communicators> of_process(engines.size());
  std::vector<core::Thread> threads;
  for (size_t p = 0; p < engines.size(); ++p) {
    threads.emplace_back(core::ThreadOptions{.name = "process"}, [&, p] {
      of_process[p] = make_process_communicators(engines[p], replicas[p], kLongDeadline, choose, host,
                                                 machines.empty() ? "" : machines[p]);
    });
  }
  for (core::Thread& thread : threads) thread.join();
  Communicators all;
  for (Communicators& some : of_process) {
    for (auto& communicator : some) {
      communicator->set_deadline(deadline);
      all.push_back(std::move(communicator));
    }
  }
  return all;
}

// The same ranks, which share memory.
inline Communicators connect_by_memory(const std::vector<std::shared_ptr<ProcessEngine>>& engines,
                                       const std::vector<int>& replicas,
                                       std::chrono::milliseconds deadline = kLongDeadline) {
  return connect(engines, replicas, deadline, choose_algorithm, HostExchange::kSharedMemory);
}

// Runs the body on a thread for each rank. Returns each rank's error.
inline std::vector<std::optional<core::Error>> on_ranks(const Communicators& communicators,
                                                        const std::function<void(core::Communicator&)>& body) {
  std::vector<std::optional<core::Error>> errors(communicators.size());
  std::vector<core::Thread> threads;
  for (size_t rank = 0; rank < communicators.size(); ++rank) {
    threads.emplace_back(core::ThreadOptions{.name = "rank"}, [&, rank] {
      try {
        body(*communicators[rank]);
      } catch (const core::Error& error) {
        errors[rank] = error;
      }
    });
  }
  for (core::Thread& thread : threads) thread.join();
  return errors;
}

inline void expect_none(const std::vector<std::optional<core::Error>>& errors) {
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

}  // namespace trainyard::parallel
