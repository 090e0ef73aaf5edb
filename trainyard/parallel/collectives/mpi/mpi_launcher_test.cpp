#include "trainyard/parallel/collectives/mpi/mpi_launcher.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/plan/plan.h"

namespace trainyard::parallel::mpi_launcher_test {
namespace {

using ::testing::Contains, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not, ::testing::StartsWith;

ReadVariable variables(const std::map<std::string, std::string>& all) {
  return [all](const std::string& name) -> std::optional<std::string> {
    const auto found = all.find(name);
    return found == all.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

// What mpirun of Open MPI 4.1.4 says.
const std::map<std::string, std::string> kMpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                                                    {"OMPI_COMM_WORLD_SIZE", "3"},
                                                    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                                                    {"PMIX_RANK", "1"},
                                                    {"PMIX_NAMESPACE", "315817985"},
                                                    {"PMIX_SERVER_TMPDIR", "/tmp/ompi.vm.0/pid.1"}};

TEST(MpiLauncher, IsKnownByItsVariables) {
  EXPECT_TRUE(started_by_mpi(variables(kMpirun)));
  EXPECT_TRUE(started_by_mpi(variables({{"PMIX_RANK", "0"}})));
  EXPECT_FALSE(started_by_mpi(variables({{"RANK", "0"}, {"WORLD_SIZE", "2"}})));
  EXPECT_EQ(local_rank_by_mpi(variables(kMpirun)), 1);
  EXPECT_EQ(local_rank_by_mpi(variables({{"PMIX_RANK", "5"}, {"SLURM_LOCALID", "2"}})), 2);
  EXPECT_EQ(local_rank_by_mpi(variables({})), 0);
}

TEST(MpiLauncher, TiesProcessesToCoresOrLetsThemShare) {
  EXPECT_EQ(processes_on_cores(variables(kMpirun)), 3);
  auto bound = kMpirun;
  bound["OMPI_MCA_orte_bound_at_launch"] = "1";
  EXPECT_EQ(processes_on_cores(variables(bound)), 1);
  EXPECT_EQ(processes_on_cores(variables({{"PMIX_RANK", "0"}})), 1);
}

TEST(MpiLauncher, OneMachineNeedsNoNetwork) {
  EXPECT_THAT(mpi_settings(variables(kMpirun)), Contains("OMPI_MCA_btl=self,vader"));
  auto several = kMpirun;
  several["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_THAT(mpi_settings(variables(several)), Contains("OMPI_MCA_btl=self,vader,tcp"));
  EXPECT_THAT(mpi_settings(variables({{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_NODES", "1"}})),
              Contains("OMPI_MCA_btl=self,vader"));
  EXPECT_THAT(mpi_settings(variables({{"PMIX_RANK", "0"}})), Contains("OMPI_MCA_btl=self,vader,tcp"));
}

// A message of a chunk that had to be asked for first would wait behind those that are on their way.
TEST(MpiLauncher, ChunksLeaveAtOnceOverTcp) {
  const std::string limit = "OMPI_MCA_btl_tcp_eager_limit=";
  EXPECT_THAT(mpi_settings(variables(kMpirun)), Not(Contains(StartsWith(limit))));
  const std::vector<std::string> settings = mpi_settings(variables({{"PMIX_RANK", "0"}}));
  const auto found = std::find_if(settings.begin(), settings.end(),
                                  [&](const std::string& setting) { return setting.starts_with(limit); });
  ASSERT_NE(found, settings.end());
  EXPECT_GT(std::stoll(found->substr(limit.size())), kChunkBytes);
  EXPECT_THAT(settings, Contains("OMPI_MCA_btl_tcp_max_send_size=" + found->substr(limit.size()))) << "in one piece";
}

TEST(MpiLauncher, SettingsAreThese) {
  // Whether processes may read each other's memory depends on the machine.
  const auto settings = [](const std::map<std::string, std::string>& all) {
    std::vector<std::string> found = mpi_settings(variables(all));
    std::erase(found, std::string("OMPI_MCA_btl_vader_single_copy_mechanism=none"));
    return found;
  };
  EXPECT_THAT(settings(kMpirun),
              ElementsAre("OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,vader", "OMPI_MCA_mpi_yield_when_idle=1"));
  EXPECT_THAT(settings({{"PMIX_RANK", "0"}}),
              ElementsAre("OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,vader,tcp", "OMPI_MCA_mpi_yield_when_idle=1",
                          StartsWith("OMPI_MCA_btl_tcp_eager_limit="), StartsWith("OMPI_MCA_btl_tcp_max_send_size=")));
}

TEST(MpiLauncher, WhatTheUserHasSetStays) {
  auto own = kMpirun;
  own["OMPI_MCA_btl"] = "self,tcp";
  EXPECT_THAT(mpi_settings(variables(own)), Not(Contains(StartsWith("OMPI_MCA_btl="))));
  EXPECT_THAT(mpi_settings(variables(own)), Contains("OMPI_MCA_pml=ob1"));
}

TEST(MpiLauncher, ProcessesOfOneMachineHaveAFolder) {
  const auto found = processes_of_mpirun(variables(kMpirun));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->size, 3);
  EXPECT_EQ(found->folder, "/tmp/ompi.vm.0/pid.1/trainyard.315817985");
  auto alone = kMpirun;
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}) alone[name] = "1";
  alone["OMPI_COMM_WORLD_RANK"] = "0";
  ASSERT_TRUE(processes_of_mpirun(variables(alone))) << "mpirun -n 1";
  EXPECT_EQ(processes_of_mpirun(variables(alone))->size, 1);
  for (const std::string name :
       {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE", "PMIX_SERVER_TMPDIR"}) {
    auto without = kMpirun;
    without.erase(name);
    EXPECT_FALSE(processes_of_mpirun(variables(without))) << name;
  }
  for (const auto& [name, value] : std::map<std::string, std::string>{
           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"PMIX_NAMESPACE", "../x"}}) {
    auto other = kMpirun;
    other[name] = value;
    EXPECT_FALSE(processes_of_mpirun(variables(other))) << name;
  }
}

TEST(MpiLauncher, TextsTravelByTheFolder) {
  const core::TempDir folder;
  const std::string path = folder.path() + "/job";
  const auto deadline = std::chrono::seconds(20);
  const auto second = share_by_folder({.rank = 1, .size = 2, .folder = path}, deadline);
  core::Thread other({.name = "rank 1"}, [&] {
    EXPECT_EQ(second("mine"), std::string("any\0bytes", 9));
    EXPECT_EQ(second("mine"), "");
  });
  const auto first = share_by_folder({.rank = 0, .size = 2, .folder = path}, deadline);
  EXPECT_EQ(first(std::string("any\0bytes", 9)), std::string("any\0bytes", 9));
  EXPECT_EQ(first(""), "");
  other.join();
}

TEST(MpiLauncher, ARank0ThatDoesNotComeIsNamed) {
  const core::TempDir folder;
  const auto own =
      share_by_folder({.rank = 1, .size = 2, .folder = folder.path() + "/job"}, std::chrono::milliseconds(20));
  EXPECT_THAT(core::message_of([&] { own(""); }, core::ErrorCode::kTimeout), HasSubstr("rank 0 has not come"));
  const auto first =
      share_by_folder({.rank = 0, .size = 2, .folder = folder.path() + "/no/where"}, std::chrono::seconds(1));
  EXPECT_THAT(core::message_of([&] { first(""); }, core::ErrorCode::kIo),
              HasSubstr("rank 0 cannot say where the processes meet"));
}

}  // namespace
}  // namespace trainyard::parallel::mpi_launcher_test
