#include "trainyard/parallel/process_group/process_group.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <ATen/ops/full.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/system/host_name.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/helper_task.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/nccl/nccl_processes.h"
#include "trainyard/parallel/testing/fake_nccl.h"
#include "trainyard/parallel/testing/free_port.h"

extern char** environ;

namespace trainyard::parallel::process_group_test {
namespace {

using core::Error, core::ErrorCode, core::thrown_by, std::chrono::milliseconds, std::chrono::seconds;

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

TEST(ProcessGroup, CarriesTextsBetweenRanks) {
  on_ranks(3, [](int rank, const ProcessRank& process) {
    ProcessGroup ranks(process, seconds(20));
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

// Where others judge it, too, a rank is not to blame while it waits, and only then.
TEST(ProcessGroup, ItIsKnownWhetherARankWaitsForTheOthers) {
  on_ranks(2, [](int rank, const ProcessRank& process) {
    ProcessGroup ranks(process, seconds(20));
    ranks.progress("save", 3);
    EXPECT_EQ(ranks.operation(), "save");
    EXPECT_FALSE(ranks.waits());
    if (rank == 1) {
      const core::Thread gathers({}, [&] { ranks.gather("all", ""); });
      while (!ranks.waits()) std::this_thread::sleep_for(milliseconds(1));
      std::this_thread::sleep_for(milliseconds(50));
      EXPECT_TRUE(ranks.waits());
      ranks.send_note_to_rank_0("come");
    } else {
      while (!ranks.told()) std::this_thread::sleep_for(milliseconds(1));
      ranks.gather("all", "");
    }
    EXPECT_FALSE(ranks.waits());
    ranks.leave();
  });
}

TEST(ProcessGroup, ANoteReachesTheFirstRank) {
  on_ranks(2, [](int rank, const ProcessRank& process) {
    ProcessGroup ranks(process, seconds(20));
    if (rank == 1) ranks.send_note_to_rank_0("stop");
    ranks.gather("told", "");
    if (rank == 0) {
      EXPECT_EQ(ranks.told(), "stop");
    }
    ranks.leave();
  });
}

// Rank 0 may be ahead by 500 texts, not by more.
TEST(ProcessGroup, RanksKeepUpWithTheTextsOfTheFirst) {
  on_ranks(2, [](int rank, const ProcessRank& process) {
    ProcessGroup ranks(process, seconds(20));
    for (int step = 0; step < 1200; ++step) {
      EXPECT_EQ(ranks.from_first("step", rank == 0 ? std::to_string(step) : ""), std::to_string(step));
    }
    ranks.leave();
  });
}

TEST(ProcessGroup, RanksThatAskForDifferentThingsHearIt) {
  std::atomic<int> refused = 0;
  on_ranks(2, [&](int rank, const ProcessRank& process) {
    ProcessGroup ranks(process, seconds(20));
    const Error error = thrown_by([&] { ranks.gather(rank == 0 ? "apples" : "pears", ""); });
    if (says(error, "apples") && says(error, "pears")) ++refused;
  });
  EXPECT_EQ(refused, 2);
  std::atomic<int> heard = 0;
  on_ranks(2, [&](int rank, const ProcessRank& process) {
    ProcessGroup ranks(process, seconds(20));
    const Error error = thrown_by([&] {
      ranks.from_first(rank == 0 ? "apples" : "pears", "");
      ranks.gather("all", "");
    });
    if (says(error, "apples") && says(error, "pears")) ++heard;
  });
  EXPECT_EQ(heard, 2);
}

TEST(ProcessGroup, ItsThreadShowsWhatTheRankDoes) {
  ProcessGroup alone({.master_port = free_port()}, seconds(20));
  alone.progress("evaluation of a very long name", 3);
  const auto names = [] {
    std::string all;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream file(task.path() / "comm");
      std::string name;
      std::getline(file, name);
      all += name + "\n";
    }
    return all;
  };
  const auto until = std::chrono::steady_clock::now() + seconds(10);
  while (names().find("at evaluation o\n") == std::string::npos) {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << names();
    std::this_thread::sleep_for(milliseconds(5));
  }
  alone.leave();
}

TEST(ProcessGroup, AnOperationIsShownWithoutAStep) {
  ProcessGroup alone({.master_port = free_port()}, seconds(20));
  alone.progress("save", 3);
  EXPECT_EQ(alone.operation(), "save");
  alone.progress("evaluation");
  EXPECT_EQ(alone.operation(), "evaluation");
  alone.leave();
  EXPECT_EQ(alone.operation(), "exit");
}

TEST(ProcessGroup, AReportEndsWhatOthersWaitFor) {
  on_ranks(2, [](int rank, const ProcessRank& process) {
    ProcessGroup ranks(process, seconds(20));
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

TEST(ProcessGroup, ARankWhoseExchangeStandsStillSaysSo) {
  on_ranks(3, [](int rank, const ProcessRank& process) {
    ProcessGroup ranks(process, milliseconds(400));
    auto turns = std::make_shared<std::atomic<int64_t>>(0);
    ranks.watch_exchange([turns, rank]() -> std::optional<int64_t> {
      if (rank == 2) return std::nullopt;  // it has nothing to exchange
      return rank == 1 ? 7 : ++*turns;
    });
    ranks.progress("all-reduce", 17);
    ranks.begin_meeting();
    const auto end = std::chrono::steady_clock::now() + seconds(20);
    while (!ranks.reported() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(5));
    ASSERT_TRUE(ranks.reported());
    const std::string message = ranks.reported()->what();
    EXPECT_NE(message.find("rank 1 does not go on: step 17, all-reduce"), std::string::npos) << message;
    EXPECT_NE(message.find("its exchange has stood still"), std::string::npos) << message;
  });
}

// As long as it says so, and no longer.
TEST(ProcessGroup, ARankThatWaitsElsewhereIsNotToBlame) {
  on_ranks(2, [](int rank, const ProcessRank& process) {
    ProcessGroup ranks(process, milliseconds(800));
    ranks.progress("step", 6);
    if (rank == 0) {
      const Error error = thrown_by([&] { ranks.gather("all", ""); });
      EXPECT_TRUE(says(error, "rank 1 does not go on: step 6, step")) << error.what();
    } else {
      ranks.begin_wait_elsewhere();
      std::this_thread::sleep_for(milliseconds(1700));
      EXPECT_FALSE(ranks.reported());
      ranks.end_wait_elsewhere();
      const auto until = std::chrono::steady_clock::now() + seconds(10);
      while (!ranks.reported() && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(milliseconds(5));
      }
      EXPECT_TRUE(ranks.reported());
    }
    ranks.leave();
  });
}

TEST(ProcessGroup, ARankThatEndsEarlyIsHeardOf) {
  on_ranks(2, [](int rank, const ProcessRank& process) {
    ProcessGroup ranks(process, seconds(20));
    if (rank == 1) return;
    EXPECT_TRUE(says(thrown_by([&] { ranks.gather("what never comes", ""); }), "rank 1: it ended before the others"));
    ranks.leave();
  });
}

TEST(ProcessGroup, ARankThatNeverComesIsATimeoutThatNamesIt) {
  const uint16_t port = free_port();
  const Error first = thrown_by([&] { ProcessGroup({.size = 3, .master_port = port}, milliseconds(300)); });
  EXPECT_EQ(first.code(), ErrorCode::kTimeout);
  EXPECT_TRUE(says(first, "nothing from rank 1, 2")) << first.what();
  const Error other = thrown_by([&] { ProcessGroup({.rank = 1, .size = 3, .master_port = port}, milliseconds(300)); });
  EXPECT_EQ(other.code(), ErrorCode::kTimeout);
  EXPECT_TRUE(says(other, "rank 0 cannot be reached")) << other.what();
  EXPECT_TRUE(says(other, "rank 1 of 3, 127.0.0.1:" + std::to_string(port))) << other.what();
}

// A launcher that hands on something else than what rank 0 said.
TEST(ProcessGroup, APlaceThatIsNoneIsCorrupt) {
  for (const std::string text :
       {"", "5000", "5000 host", "x host token", " host token", "5x host token", "70000 host token", "-1 host token"}) {
    const ProcessGroupOptions options{.deadlines = {.start = milliseconds(200), .step = milliseconds(200)},
                                      .share = [&text](const std::string&) { return text; }};
    const Error error = thrown_by([&] { ProcessGroup({.rank = 1, .size = 2}, options); });
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData) << text << ": " << error.what();
    EXPECT_TRUE(says(error, "expected a port, an address, a token")) << error.what();
    EXPECT_TRUE(text.empty() || says(error, "got " + text)) << error.what();
  }
}

TEST(ProcessGroup, APortInUseIsAnErrorOfRank0) {
  const TakenPort taken;
  const Error error = thrown_by([&] { ProcessGroup({.size = 2, .master_port = taken.number()}, seconds(2)); });
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_TRUE(says(error, "rank 0 cannot serve the other ranks: rank 0 of 2, ")) << error.what();
  EXPECT_TRUE(says(error, std::to_string(taken.number()))) << error.what();
  EXPECT_TRUE(says(error, "choose another MASTER_PORT, the same on all ranks")) << error.what();
}

TEST(ProcessGroup, AnAddressOfAnotherMachineIsAnErrorOfRank0) {
  const ProcessGroupOptions options{.deadlines = {.start = milliseconds(500), .step = milliseconds(500)},
                                    .listen_address = "192.0.2.1",  // of no machine
                                    .share = [](const std::string& text) { return text; }};
  const Error error = thrown_by([&] { ProcessGroup({.size = 3}, options); });
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_TRUE(says(error, "rank 0 cannot serve the other ranks: rank 0 of 3, ")) << error.what();
  EXPECT_TRUE(says(error, "pass an address of rank 0's machine: --listen_address=ADDRESS")) << error.what();
}

// /etc/hosts of many systems gives the machine's own name a loopback address.
TEST(ProcessGroup, WarnsOfItsOwnNameWhereOthersCannotConnectByIt) {
  const auto said_by = [](int size, const std::string& address) {
    const ProcessRank process{.size = size, .master_address = address, .master_port = free_port()};
    ::testing::internal::CaptureStderr();
    core::error_of([&] { ProcessGroup(process, milliseconds(200)).leave(); });
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string own_name = core::host_name();
  const std::string warning = "rank 0 listens at " + own_name + ", which is a loopback address here";
  bool is_loopback = false;  // also where the name is of no address
  core::error_of([&] { is_loopback = own_name != "localhost" && is_own_name_of_loopback(own_name, own_name); });
  EXPECT_EQ(said_by(2, own_name).find(warning) != std::string::npos, is_loopback);
  EXPECT_EQ(said_by(1, own_name).find(warning), std::string::npos) << "no other rank connects";
  EXPECT_EQ(said_by(2, "127.0.0.1").find("which is a loopback address here"), std::string::npos);
  EXPECT_EQ(said_by(2, "localhost").find("which is a loopback address here"), std::string::npos);
}

TEST(ProcessGroup, RanksMustAgreeOnHowManyTheyAre) {
  std::atomic<int> refused = 0, told = 0;
  on_ranks(2, [&](int rank, ProcessRank process) {
    process.size += rank;
    const Error error = thrown_by([&] { ProcessGroup(process, seconds(20)); });
    if (rank == 1 && says(error, "expected 2 as on rank 0, got 3")) ++refused;
    if (rank == 0 && says(error, "disagree")) ++told;
  });
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(told, 1);
}

TEST(ProcessGroup, TwoProcessesOfOneRankAreAnError) {
  std::atomic<int> refused = 0;
  on_ranks(3, [&](int rank, ProcessRank process) {
    process.rank = std::min(rank, 1);
    const Error error = thrown_by([&] { ProcessGroup(process, seconds(20)); });
    if (says(error, "two processes have the same rank")) ++refused;
  });
  EXPECT_GE(refused, 1);
}

// On a NCCL that all ranks of this process share.
TEST(NcclProcesses, JoinAndReduce) {
  const auto library = std::make_shared<FakeNccl>();
  on_ranks(3, [&](int rank, const ProcessRank& process) {
    const auto ranks = std::make_shared<ProcessGroup>(process, seconds(20));
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
    const auto ranks = std::make_shared<ProcessGroup>(process, seconds(20));
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
    const auto ranks = std::make_shared<ProcessGroup>(process, seconds(20));
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

constexpr const char* kTask = "TRAINYARD_PROCESS_GROUP_TEST_TASK";

// What a process of the tests below does. Its last words are on stdout.
void meet_the_others(const std::string& task) {
  try {
    ProcessGroup ranks(read_process_rank(), task == "late" ? seconds(2) : seconds(20));
    const std::string id = ranks.from_first("id", "made by process " + std::to_string(::getpid()));
    if (task == "server dies" && ranks.rank() == 0) ::_exit(3);
    if (task == "late") {
      const bool late = ranks.rank() == 1;
      ranks.progress(late ? "input" : "all-reduce", 7);
      if (late) ::sleep(4);
    }
    ranks.gather("all have it", id);
    std::printf("SAYS rank %d has %s\n", ranks.rank(), id.c_str());
    ranks.leave();
  } catch (const Error& error) {
    std::printf("SAYS %s\n", error.what());
  }
}
const bool kMeetsTheOthers = core::add_helper_task(kTask, "ProcessGroupTask.InAProcess", meet_the_others);

struct Child {
  pid_t process = 0;
  std::string output;  // a file
};

Child start(const std::string& task, int rank, int size, uint16_t port) {
  Child child{.output =
                  testing::TempDir() + "process_group_" + std::to_string(::getpid()) + "_" + std::to_string(rank)};
  std::vector<std::string> settings = {
      std::string(kTask) + "=" + task,      "RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(size),
      "LOCAL_RANK=" + std::to_string(rank), "MASTER_ADDR=127.0.0.1",        "MASTER_PORT=" + std::to_string(port)};
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) environment.push_back(*variable);
  for (std::string& setting : settings) environment.push_back(setting.data());
  environment.push_back(nullptr);
  std::string program = "/proc/self/exe", filter = "--gtest_filter=ProcessGroupTask.InAProcess";
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

TEST(ProcessGroupProcess, ThreeOfThemGetOneId) {
  const std::vector<std::string> said = run_processes("meet", 3);
  ASSERT_TRUE(said[0].starts_with("rank 0 has made by process ")) << said[0];
  for (int rank = 1; rank < 3; ++rank) {
    EXPECT_EQ(said[static_cast<size_t>(rank)], "rank " + std::to_string(rank) + said[0].substr(6));
  }
}

TEST(ProcessGroupProcess, OneThatDoesNotGoOnIsNamedByAll) {
  const std::vector<std::string> said = run_processes("late", 2);
  for (const std::string& rank : said) {
    EXPECT_NE(rank.find("rank 1 does not go on: step 7, input"), std::string::npos) << rank;
    EXPECT_NE(rank.find("waited 2 s for it in all-reduce"), std::string::npos) << rank;
  }
}

TEST(ProcessGroupProcess, ADeadFirstRankIsSeen) {
  const std::vector<std::string> said = run_processes("server dies", 2);
  EXPECT_EQ(said[0], "");
  EXPECT_NE(said[1].find("rank 0 has died"), std::string::npos) << said[1];
}

}  // namespace
}  // namespace trainyard::parallel::process_group_test
