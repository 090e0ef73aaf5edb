// Ranks on threads of a test, each with a process group of its own.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/testing/free_port.h"

namespace trainyard::parallel {

// Runs `work` on a thread for each of `size` ranks, which leave together behind it.
inline void on_ranks(int size, const std::function<void(const std::shared_ptr<ProcessGroup>& group)>& work,
                     RankDeadlines deadlines = {.start = std::chrono::seconds(20), .step = std::chrono::seconds(20)}) {
  const uint16_t port = free_port();
  std::vector<core::Thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back(core::ThreadOptions{}, [&work, rank, size, port, deadlines] {
      const auto group = std::make_shared<ProcessGroup>(ProcessRank{.rank = rank, .size = size, .master_port = port},
                                                        ProcessGroupOptions{.deadlines = deadlines});
      work(group);
      group->leave();
    });
  }
  for (core::Thread& thread : threads) thread.join();
}

}  // namespace trainyard::parallel
