#include "trainyard/parallel/launch/mpirun_command.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/launch/agent.h"

namespace trainyard::parallel::mpirun_command_test {
namespace {

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

const RankCommand kTwo{.ranks = 2, .arguments = {"program", "--flag"}};

TEST(MpirunCommand, OfOneHostListensForNoOther) {
  const auto words = mpirun_command({.trainyard = "/bin/trainyard"}, kTwo, nullptr, {}, {"/tmp/s", "/dev/shm/m"});
  for (const char* word : {"TRAINYARD_BIND_ADDRESS=127.0.0.1", "OMPI_MCA_btl=self,vader",
                           "OMPI_MCA_oob_tcp_if_include=lo", "OMPI_MCA_orte_tmpdir_base=/tmp/s",
                           "OMPI_MCA_btl_vader_backing_directory=/dev/shm/m", "localhost:2", "--enable-recovery"}) {
    EXPECT_TRUE(has(words, word)) << word;
  }
  EXPECT_EQ(std::vector<std::string>(words.end() - 5, words.end()),
            (std::vector<std::string>{"/bin/trainyard", "launch-rank", "--", "program", "--flag"}));
}

TEST(MpirunCommand, OfSeveralHostsListensInTheirNetwork) {
  const Network network{.text = "10.0.0.0/24", .own_address = "10.0.0.7"};
  const LaunchOptions options{.trainyard = "/bin/trainyard", .hosts = "a:1,b:1"};
  const auto words = mpirun_command(options, kTwo, &network, {}, {});
  for (const char* word :
       {"TRAINYARD_BIND_ADDRESS=10.0.0.7", "OMPI_MCA_btl=self,vader,tcp", "OMPI_MCA_oob_tcp_if_include=10.0.0.0/24",
        "OMPI_MCA_btl_tcp_if_include=10.0.0.0/24", "a:1,b:1"}) {
    EXPECT_TRUE(has(words, word)) << word;
  }
  EXPECT_TRUE(has(mpirun_command(options, kTwo, &network, {{"b", 1}}, {}), "b:1"));
}

// The settings of Open MPI, and the words from "mpirun" on, of a user who preloads nothing.
TEST(MpirunCommand, IsMadeOfTheseWords) {
  const core::EnvironmentVariable none("LD_PRELOAD", std::nullopt);
  const auto settings_of = [](const std::vector<std::string>& words) {
    std::vector<std::string> settings;
    std::copy_if(words.begin(), std::find(words.begin(), words.end(), "mpirun"), std::back_inserter(settings),
                 [](const std::string& word) { return word.starts_with("OMPI_MCA_"); });
    return settings;
  };
  const auto words_behind = [](const std::vector<std::string>& words) {
    return std::vector<std::string>(std::find(words.begin(), words.end(), "mpirun"), words.end());
  };
  const LaunchOptions options{.trainyard = "/bin/trainyard"};
  const auto one = mpirun_command(options, kTwo, nullptr, {}, {"/tmp/s", "/dev/shm/m"});
  EXPECT_EQ(one[0], "env");
  EXPECT_EQ(settings_of(one),
            (std::vector<std::string>{"OMPI_MCA_mpi_yield_when_idle=1", "OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,vader",
                                      "OMPI_MCA_oob_tcp_if_include=lo", "OMPI_MCA_orte_tmpdir_base=/tmp/s",
                                      "OMPI_MCA_plm=isolated", "OMPI_MCA_ras=^slurm,tm,lsf,gridengine,loadleveler,alps",
                                      "OMPI_MCA_btl_vader_backing_directory=/dev/shm/m",
                                      "OMPI_MCA_osc_sm_backing_directory=/dev/shm/m"}));
  std::vector<std::string> expected{
      "mpirun", "--enable-recovery", "--oversubscribe", "--bind-to", "none", "--map-by", "slot", "-n", "2"};
  const size_t of_hosts = expected.size();
  for (const char* const word :
       {"--host", "localhost:2", "-x", kLaunchAddressVariable, "-x", kLaunchTokenVariable, "env", "-u",
        "TRAINYARD_BIND_ADDRESS", "-u", "LD_PRELOAD", "/bin/trainyard", "launch-rank", "--", "program", "--flag"}) {
    expected.emplace_back(word);
  }
  EXPECT_EQ(words_behind(one), expected);

  const Network network{.text = "10.0.0.0/24", .own_address = "10.0.0.7"};
  const auto several = mpirun_command(options, kTwo, &network, {{"a", 1}, {"b", 1}}, {});
  EXPECT_EQ(
      settings_of(several),
      (std::vector<std::string>{"OMPI_MCA_mpi_yield_when_idle=1", "OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,vader,tcp",
                                "OMPI_MCA_oob_tcp_if_include=10.0.0.0/24", "OMPI_MCA_btl_tcp_if_include=10.0.0.0/24"}));
  expected[of_hosts + 1] = "a:1,b:1";
  const auto behind_token = expected.begin() + static_cast<std::ptrdiff_t>(of_hosts) + 6;
  expected.insert(behind_token, {"-x", std::string(kLaunchNetworkVariable) + "=10.0.0.0/24"});
  EXPECT_EQ(words_behind(several), expected);
}

TEST(MpirunCommand, LeavesTheUsersSettingsOfOpenMpi) {
  ::setenv("OMPI_MCA_pml", "ucx", 1);
  const auto words = mpirun_command({}, kTwo, nullptr, {}, {});
  ::unsetenv("OMPI_MCA_pml");
  EXPECT_FALSE(has(words, "OMPI_MCA_pml=ob1"));
  EXPECT_TRUE(has(mpirun_command({}, kTwo, nullptr, {}, {}), "OMPI_MCA_pml=ob1"));
}

// mpirun has our library in front of them, and ranks have them alone.
TEST(MpirunCommand, LeavesTheUsersOwnPreloads) {
  const char* const before = std::getenv("LD_PRELOAD");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("LD_PRELOAD", "libm.so.6", 1);
  const auto with = mpirun_command({}, kTwo, nullptr, {}, {});
  ::unsetenv("LD_PRELOAD");
  const auto without = mpirun_command({}, kTwo, nullptr, {}, {});
  if (before != nullptr) ::setenv("LD_PRELOAD", kept.c_str(), 1);
  const auto of_ranks = [](const std::vector<std::string>& words) {
    return std::vector<std::string>(std::find(words.begin(), words.end(), "mpirun"), words.end());
  };
  const std::string own = loopback_preload_path();
  EXPECT_EQ(has(with, "LD_PRELOAD=" + own + ":libm.so.6"), !own.empty());
  EXPECT_EQ(has(without, "LD_PRELOAD=" + own), !own.empty());
  EXPECT_TRUE(has(of_ranks(with), "LD_PRELOAD=libm.so.6"));
  EXPECT_FALSE(has(of_ranks(with), "LD_PRELOAD"));
  const auto taken_away = of_ranks(without);
  const auto name = std::find(taken_away.begin(), taken_away.end(), "LD_PRELOAD");
  ASSERT_NE(name, taken_away.end());
  EXPECT_EQ(*(name - 1), "-u");
}

TEST(LaunchOptions, RefuseWhatMakesNoSense) {
  const auto refusal = [](const LaunchOptions& options) {
    return std::string(core::thrown_by([&] { options.validate(); }).what());
  };
  EXPECT_NE(refusal({}).find("nothing to launch"), std::string::npos);
  EXPECT_NE(refusal({.commands = {kTwo}, .hosts = "a:2"}).find("--network"), std::string::npos);
  EXPECT_NE(refusal({.commands = {kTwo}, .hosts = "a:2", .host_file = "f", .network = "127.0.0.0/8"}).find("both"),
            std::string::npos);
  EXPECT_NE(refusal({.commands = {kTwo, {.ranks = 1, .arguments = {"p"}}}}).find("--max_restarts"), std::string::npos);
  EXPECT_NE(refusal({.commands = {kTwo, kTwo}, .max_restarts = 1}).find("use 1 to 1"), std::string::npos);
}

// mpirun takes the hosts from a file, and each rank has further arguments.
TEST(MpirunCommand, StartsTheRanksOfAHostFileWithTheirOwnArguments) {
  const Network network{.text = "10.0.0.0/24", .own_address = "10.0.0.7"};
  const LaunchOptions options{.trainyard = "/bin/trainyard", .host_file = "my_hosts"};
  const RankCommand command{.ranks = 2, .arguments = {"program", "--flag"}, .of_rank = {{"--a=1", "--b"}, {"--c"}}};
  const auto words = mpirun_command(options, command, &network, {}, {"/tmp/s", "/dev/shm/m"});
  const std::vector<std::string> before{
      "mpirun", "--enable-recovery", "--oversubscribe", "--bind-to", "none", "--map-by", "slot", "-n",
      "2",      "--hostfile",        "my_hosts"};
  const auto mpirun = std::find(words.begin(), words.end(), "mpirun");
  ASSERT_GT(words.end() - mpirun, std::ssize(before));
  EXPECT_EQ(std::vector<std::string>(mpirun, mpirun + std::ssize(before)), before);
  EXPECT_EQ(std::vector<std::string>(words.end() - 7, words.end()),
            (std::vector<std::string>{"/bin/trainyard", "launch-rank", "--a=1 --b", "--c", "--", "program", "--flag"}));
  EXPECT_TRUE(has(words, std::string(kLaunchNetworkVariable) + "=10.0.0.0/24"));
  EXPECT_FALSE(has(words, "OMPI_MCA_orte_tmpdir_base=/tmp/s")) << "folders of this machine are none of others";
}

TEST(MpirunCommand, OfOneHostHasItsSharedMemoryWhereItIsTold) {
  const auto words = mpirun_command({}, kTwo, nullptr, {}, {"/tmp/s", "/dev/shm/m"});
  EXPECT_TRUE(has(words, "OMPI_MCA_osc_sm_backing_directory=/dev/shm/m"));
  EXPECT_TRUE(has(words, "OMPI_MCA_plm=isolated"));
  const auto without = mpirun_command({}, kTwo, nullptr, {}, {"/tmp/s", ""});
  EXPECT_FALSE(has(without, "OMPI_MCA_osc_sm_backing_directory="));
  EXPECT_FALSE(has(without, "OMPI_MCA_btl_vader_backing_directory="));
}

TEST(LaunchOptions, TakeEachNumberOfRanksThatMayBe) {
  const auto refusal = [](const LaunchOptions& options) { return core::message_of([&] { options.validate(); }); };
  const auto of_ranks = [](int ranks) { return RankCommand{.ranks = ranks, .arguments = {"p"}}; };
  EXPECT_EQ(refusal({.commands = {of_ranks(4096)}}), "no error");
  EXPECT_THAT(refusal({.commands = {of_ranks(4097)}}), core::Says("number of ranks: got 4097; use 1 to 4096"));
  EXPECT_THAT(refusal({.commands = {of_ranks(0)}}), core::Says("number of ranks: got 0; use 1 to 4096"));
  EXPECT_EQ(refusal({.commands = {of_ranks(4), of_ranks(3), of_ranks(1)}, .max_restarts = 1}), "no error");
  EXPECT_THAT(refusal({.commands = {of_ranks(4), of_ranks(3), of_ranks(3)}, .max_restarts = 1}),
              core::Says("number of ranks: got 3; use 1 to 2"));
  RankCommand more = of_ranks(2);
  more.of_rank.resize(1);
  EXPECT_THAT(refusal({.commands = {more}}), core::Says("for another number of ranks: got 1; "));
  more.of_rank.resize(2);
  EXPECT_EQ(refusal({.commands = {more}}), "no error");
  EXPECT_EQ(refusal({.commands = {of_ranks(2)}, .hosts = "a:2", .network = "10.0.0.0/8"}), "no error");
  EXPECT_NE(refusal({.commands = {of_ranks(2)}, .hosts = "a:0", .network = "10.0.0.0/8"}), "no error");
}

TEST(LaunchOptions, NameARankByItsRoleToo) {
  const LaunchOptions options{.names = {"ps 0", "worker 0"}};
  EXPECT_EQ(options.name_of(1), "worker 0 (rank 1)");
  EXPECT_EQ(options.name_of(2), "rank 2");
}

}  // namespace
}  // namespace trainyard::parallel::mpirun_command_test
