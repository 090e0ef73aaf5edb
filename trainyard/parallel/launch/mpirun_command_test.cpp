#include "trainyard/parallel/launch/mpirun_command.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

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

}  // namespace
}  // namespace trainyard::parallel::mpirun_command_test
