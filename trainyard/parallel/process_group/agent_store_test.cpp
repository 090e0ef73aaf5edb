// Processes that torchrun starts meet where its store says, whichever port rank 0 got.
#include "trainyard/parallel/process_group/agent_store.h"

#include <optional>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/testing/free_port.h"

namespace trainyard::parallel::agent_store_test {
namespace {

using std::chrono::seconds;

// As torchrun's agent serves it.
class Store {
 public:
  Store() {
    c10d::TCPStoreOptions options;
    options.isServer = true;
    options.port = 0;
    options.waitWorkers = false;
    store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }
  ProcessRank process(int rank) const {
    return {.rank = rank, .size = 2, .master_port = store_->getPort(), .served_by_launcher = true};
  }

 private:
  c10::intrusive_ptr<c10d::TCPStore> store_;
};

TEST(AgentStore, RanksMeetWhereItSays) {
  const Store store;
  std::vector<std::string> seen(2);
  {
    std::vector<core::Thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back(core::ThreadOptions{}, [&, rank] {
        ProcessGroup group(store.process(rank), seconds(20));
        seen[static_cast<size_t>(rank)] = group.from_first("place", "from " + std::to_string(rank));
        group.leave();
      });
    }
    for (core::Thread& thread : threads) thread.join();
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"from 0", "from 0"}));
}

TEST(AgentStore, AllGetTheTextOfTheFirst) {
  const Store store;
  EXPECT_EQ(share_in_agent_store(store.process(0), "here", seconds(5)), "here");
  EXPECT_EQ(share_in_agent_store(store.process(1), "", seconds(5)), "here");
}

// torchrun starts the ranks again with the same store.
TEST(AgentStore, EachStartHasATextOfItsOwn) {
  const Store store;
  const core::EnvironmentVariable restarts("TORCHELASTIC_RESTART_COUNT", std::nullopt);
  EXPECT_EQ(share_in_agent_store(store.process(0), "first", seconds(5)), "first");
  restarts.set("1");
  EXPECT_EQ(share_in_agent_store(store.process(0), "second", seconds(5)), "second");
  EXPECT_EQ(share_in_agent_store(store.process(1), "", seconds(5)), "second");
  restarts.set("0");
  EXPECT_EQ(share_in_agent_store(store.process(1), "", seconds(5)), "first");
}

TEST(AgentStore, WithoutAFirstRankItIsATimeoutThatNamesTheStore) {
  const Store store;
  const core::Error error =
      core::thrown_by([&] { share_in_agent_store(store.process(1), "", std::chrono::milliseconds(300)); });
  EXPECT_EQ(error.code(), core::ErrorCode::kTimeout);
  EXPECT_TRUE(core::says(error, "rank 1 of 2, 127.0.0.1:" + std::to_string(store.process(1).master_port)))
      << error.what();
}

}  // namespace
}  // namespace trainyard::parallel::agent_store_test
