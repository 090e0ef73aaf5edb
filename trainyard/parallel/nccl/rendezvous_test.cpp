#include "trainyard/parallel/nccl/rendezvous.h"

#include <fstream>
#include <map>
#include <sstream>

#include <ATen/ops/full.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/helper_task.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/nccl/nccl_processes.h"
#include "trainyard/parallel/testing/fake_nccl.h"
#include "trainyard/parallel/testing/free_port.h"

extern char** environ;

namespace trainyard::parallel {
namespace {

using core::Error;
using core::ErrorCode;
using core::thrown_by;
using std::chrono::milliseconds;
using std::chrono::seconds;

ReadVariable variables(std::map<std::string, std::string> all) {
  return [all = std::move(all)](const std::string& name) -> std::optional<std::string> {
    const auto found = all.find(name);
    return found == all.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(ProcessRank, IsWhatTheVariablesSay) {
  const std::map<std::string, std::string> good = {
      {"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
  const ProcessRank process = read_process_rank(variables(good));
  EXPECT_EQ(process.rank, 5);
  EXPECT_EQ(process.size, 8);
  EXPECT_EQ(process.local_rank, 1);
  EXPECT_EQ(process.master_address, "node1");
  EXPECT_EQ(process.master_port, 29500);
  EXPECT_FALSE(process.served_by_launcher);
  auto changed = good;
  changed.erase("LOCAL_RANK");
  EXPECT_EQ(read_process_rank(variables(changed)).local_rank, 5);
  changed["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_TRUE(read_process_rank(variables(changed)).served_by_launcher);
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    changed = good;
    changed.erase(name);
    const Error error = thrown_by([&] { read_process_rank(variables(changed)); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(says(error, std::string("variable ") + name)) << error.what();
  }
  const std::vector<std::pair<std::string, std::string>> bad = {{"RANK", "8"},
                                                                {"RANK", "-1"},
                                                                {"RANK", "1x"},
                                                                {"WORLD_SIZE", "0"},
                                                                {"WORLD_SIZE", "99999999999999999999"},
                                                                {"MASTER_PORT", "0"},
                                                                {"MASTER_PORT", "65536"},
                                                                {"LOCAL_RANK", "6"}};
  for (const auto& [name, value] : bad) {
    changed = good;
    changed[name] = value;
    EXPECT_TRUE(says(thrown_by([&] { read_process_rank(variables(changed)); }), name)) << value;
  }
}

// Ranks on threads, each with a connection of its own.
void on_ranks(int size, const std::function<void(int rank, const ProcessRank&)>& work) {
  const uint16_t port = free_port();
  std::vector<core::Thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back(core::ThreadOptions{},
                         [&work, r, size, port] { work(r, {.rank = r, .size = size, .master_port = port}); });
  }
  for (core::Thread& thread : threads) thread.join();
}

TEST(Rendezvous, CarriesTextsBetweenRanks) {
  on_ranks(3, [](int rank, const ProcessRank& process) {
    Rendezvous ranks(process, seconds(20));
    EXPECT_EQ(ranks.rank(), rank);
    EXPECT_EQ(ranks.size(), 3);
    const std::string bytes("an id\0with \xff bytes", 17);
    EXPECT_EQ(ranks.from_first("id", rank == 0 ? bytes : "not this"), bytes);
    EXPECT_EQ(ranks.gather("places", "place " + std::to_string(rank)),
              (std::vector<std::string>{"place 0", "place 1", "place 2"}));
    EXPECT_EQ(ranks.from_first("again", std::to_string(rank)), "0");
    EXPECT_FALSE(ranks.reported());
    ranks.leave();
  });
}

TEST(Rendezvous, ANoteReachesTheFirstRank) {
  on_ranks(2, [](int rank, const ProcessRank& process) {
    Rendezvous ranks(process, seconds(20));
    if (rank == 1) ranks.tell_first("stop");
    ranks.gather("told", "");
    if (rank == 0) {
      EXPECT_EQ(ranks.told(), "stop");
    }
    ranks.leave();
  });
}

// 1000 texts are kept, which is more than a rank can be behind.
TEST(Rendezvous, ForgetsWhatIsLongPast) {
  on_ranks(2, [](int rank, const ProcessRank& process) {
    Rendezvous ranks(process, seconds(20));
    const auto kept = [&] {
      c10d::TCPStoreOptions options;
      options.port = process.master_port;
      return c10d::TCPStore(process.master_address, options).getNumKeys();
    };
    for (int step = 0; step < 1100; ++step) ranks.from_first("step", "");
    ranks.gather("all have come here", "");
    const int64_t before = rank == 0 ? kept() : 0;
    ranks.gather("it was looked at", "");
    for (int step = 0; step < 300; ++step) ranks.from_first("step", "");
    ranks.gather("all have come here, too", "");
    if (rank == 0) {
      EXPECT_GT(before, 1000);
      EXPECT_LT(kept(), before + 20) << "only the keys of gather() are new";
    }
    ranks.gather("end", "");
    ranks.leave();
  });
}

TEST(Rendezvous, AReportEndsWhatOthersWaitFor) {
  on_ranks(2, [](int rank, const ProcessRank& process) {
    Rendezvous ranks(process, seconds(20));
    if (rank == 1) {
      ranks.report({ErrorCode::kNoSpace, "out of GPU memory"});
      ranks.report({ErrorCode::kIo, "a later error"});
    } else {
      const Error error = thrown_by([&] { ranks.gather("what never comes", ""); });
      EXPECT_EQ(error.code(), ErrorCode::kPeerFailed);
      EXPECT_TRUE(says(error, "rank 1: out of GPU memory")) << error.what();
    }
    ranks.leave();
  });
}

TEST(Rendezvous, ARankThatEndsEarlyIsHeardOf) {
  on_ranks(2, [](int rank, const ProcessRank& process) {
    Rendezvous ranks(process, seconds(20));
    if (rank == 1) return;
    EXPECT_TRUE(says(thrown_by([&] { ranks.gather("what never comes", ""); }), "rank 1: it ended before the others"));
    ranks.leave();
  });
}

TEST(Rendezvous, ARankThatNeverComesIsATimeoutThatNamesIt) {
  const uint16_t port = free_port();
  const Error first = thrown_by([&] { Rendezvous({.size = 3, .master_port = port}, milliseconds(300)); });
  EXPECT_EQ(first.code(), ErrorCode::kTimeout);
  EXPECT_TRUE(says(first, "nothing from rank 1, 2")) << first.what();
  const Error other = thrown_by([&] { Rendezvous({.rank = 1, .size = 3, .master_port = port}, milliseconds(300)); });
  EXPECT_EQ(other.code(), ErrorCode::kTimeout);
  EXPECT_TRUE(says(other, "rank 0 cannot be reached")) << other.what();
  EXPECT_TRUE(says(other, "127.0.0.1:" + std::to_string(port))) << other.what();
}

TEST(Rendezvous, APortInUseIsAnErrorOfRank0) {
  const TakenPort taken;
  const Error error = thrown_by([&] { Rendezvous({.size = 2, .master_port = taken.number()}, seconds(2)); });
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_TRUE(says(error, std::to_string(taken.number()))) << error.what();
  EXPECT_TRUE(says(error, "MASTER_PORT")) << error.what();
}

TEST(Rendezvous, RanksMustAgreeOnHowManyTheyAre) {
  std::atomic<int> refused = 0, told = 0;
  on_ranks(2, [&](int rank, ProcessRank process) {
    process.size += rank;
    const Error error = thrown_by([&] { Rendezvous(process, seconds(20)); });
    if (rank == 1 && says(error, "expected 2 as on rank 0, got 3")) ++refused;
    if (rank == 0 && says(error, "disagree")) ++told;
  });
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(told, 1);
}

TEST(Rendezvous, TwoProcessesOfOneRankAreAnError) {
  std::atomic<int> refused = 0;
  on_ranks(3, [&](int rank, ProcessRank process) {
    process.rank = std::min(rank, 1);
    const Error error = thrown_by([&] { Rendezvous(process, seconds(20)); });
    if (says(error, "two processes have the same rank")) ++refused;
  });
  EXPECT_GE(refused, 1);
}

// On a NCCL that all ranks of this process share.
TEST(NcclProcesses, JoinAndReduce) {
  const auto library = std::make_shared<FakeNccl>();
  on_ranks(3, [&](int rank, const ProcessRank& process) {
    const auto ranks = std::make_shared<Rendezvous>(process, seconds(20));
    {
      const auto communicator = join_nccl_processes(library, ranks, at::kCPU, seconds(20));
      at::Tensor tensor = at::full({2}, rank + 1.0);
      communicator->all_reduce(tensor, core::ReduceOp::kMean);
      dynamic_cast<DeviceCommunicator&>(*communicator).wait();
      EXPECT_EQ(tensor[1].item<float>(), 2);
      ranks->gather("done", "");
    }
    ranks->leave();
  });
  EXPECT_EQ(library->aborted, 0);
  EXPECT_EQ(library->finished, 3);
}

TEST(NcclProcesses, OneGpuForTwoIsRefusedOnAllRanks) {
  const auto library = std::make_shared<FakeNccl>();
  library->one_gpu = true;
  std::atomic<int> refused = 0;
  on_ranks(2, [&](int, const ProcessRank& process) {
    const auto ranks = std::make_shared<Rendezvous>(process, seconds(20));
    if (says(thrown_by([&] { join_nccl_processes(library, ranks, at::kCPU, seconds(20)); }), "ranks 0 and 1"))
      ++refused;
    ranks->leave();
  });
  EXPECT_EQ(refused, 2);
  EXPECT_EQ(library->destroyed, 0);
}

TEST(NcclProcesses, AnErrorOfOneProcessEndsTheWaitOfAnother) {
  const auto library = std::make_shared<FakeNccl>();
  on_ranks(2, [&](int rank, const ProcessRank& process) {
    const auto ranks = std::make_shared<Rendezvous>(process, seconds(20));
    {
      const auto communicator = join_nccl_processes(library, ranks, at::kCPU, seconds(20));
      if (rank == 1) ranks->report({ErrorCode::kIo, "the disk of rank 1 is full"});
      if (rank == 0) {
        communicator->all_reduce(at::full({2}, 1.0), core::ReduceOp::kSum);
        const Error error = thrown_by([&] { dynamic_cast<DeviceCommunicator&>(*communicator).wait(); });
        EXPECT_EQ(error.code(), ErrorCode::kPeerFailed);
        EXPECT_TRUE(says(error, "the disk of rank 1 is full")) << error.what();
      }
    }
    ranks->leave();
  });
}

// --- real processes: this program again, with the variables that a launcher sets ---

constexpr const char* kTask = "TRAINYARD_RENDEZVOUS_TEST_TASK";

// What a process of the tests below does. Its last words are on stdout.
void meet_the_others(const std::string& task) {
  try {
    Rendezvous ranks(read_process_rank(), task == "late" ? seconds(4) : seconds(20));
    const std::string id = ranks.from_first("id", "made by process " + std::to_string(::getpid()));
    if (task == "server dies" && ranks.rank() == 0) ::_exit(3);
    if (task == "late" && ranks.rank() == 1) ::sleep(6);
    ranks.gather("all have it", id);
    std::printf("SAYS rank %d has %s\n", ranks.rank(), id.c_str());
    ranks.leave();
  } catch (const Error& error) {
    std::printf("SAYS %s\n", error.what());
  }
}
const bool kMeetsTheOthers = core::add_helper_task(kTask, "RendezvousTask.InAProcess", meet_the_others);

struct Child {
  pid_t process = 0;
  std::string output;  // a file
};

Child start(const std::string& task, int rank, int size, uint16_t port) {
  Child child{.output = testing::TempDir() + "rendezvous_" + std::to_string(::getpid()) + "_" + std::to_string(rank)};
  std::vector<std::string> settings = {
      std::string(kTask) + "=" + task,      "RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(size),
      "LOCAL_RANK=" + std::to_string(rank), "MASTER_ADDR=127.0.0.1",        "MASTER_PORT=" + std::to_string(port)};
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) environment.push_back(*variable);
  for (std::string& setting : settings) environment.push_back(setting.data());
  environment.push_back(nullptr);
  std::string program = "/proc/self/exe", filter = "--gtest_filter=RendezvousTask.InAProcess";
  char* arguments[] = {program.data(), filter.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, child.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  EXPECT_EQ(::posix_spawn(&child.process, program.c_str(), &actions, nullptr, arguments, environment.data()), 0);
  posix_spawn_file_actions_destroy(&actions);
  return child;
}

// What each said, in rank order.
std::vector<std::string> run_processes(const std::string& task, int size) {
  const uint16_t port = free_port();
  std::vector<Child> children;
  for (int rank = 0; rank < size; ++rank) children.push_back(start(task, rank, size, port));
  std::vector<std::string> said;
  for (const Child& child : children) {
    int status = 0;
    ::waitpid(child.process, &status, 0);
    said.emplace_back();
    std::ifstream file(child.output);
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("SAYS ")) said.back() += line.substr(5);
    }
    ::unlink(child.output.c_str());
  }
  return said;
}

TEST(RendezvousProcess, ThreeOfThemGetOneId) {
  const std::vector<std::string> said = run_processes("meet", 3);
  ASSERT_TRUE(said[0].starts_with("rank 0 has made by process ")) << said[0];
  for (int rank = 1; rank < 3; ++rank) {
    EXPECT_EQ(said[static_cast<size_t>(rank)], "rank " + std::to_string(rank) + said[0].substr(6));
  }
}

TEST(RendezvousProcess, OneThatIsTooLateIsNamed) {
  const std::vector<std::string> said = run_processes("late", 2);
  EXPECT_NE(said[0].find("nothing from rank 1"), std::string::npos) << said[0];
  EXPECT_NE(said[1].find("rank 0 has gone"), std::string::npos) << said[1];  // it served the store
}

TEST(RendezvousProcess, ADeadStoreIsSeen) {
  const std::vector<std::string> said = run_processes("server dies", 2);
  EXPECT_EQ(said[0], "");
  EXPECT_NE(said[1].find("rank 0 has gone"), std::string::npos) << said[1];
}

}  // namespace
}  // namespace trainyard::parallel
