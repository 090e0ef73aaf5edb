#include "trainyard/parallel/process_group/launcher_claims.h"

#include <cstdint>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::launcher_claims_test {
namespace {

using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

ReadVariable reader(const Variables& all) {
  return [all](const std::string& name) -> std::optional<std::string> {
    const auto found = all.find(name);
    return found == all.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

// How many processes the launchers say; 1: no more than this one.
int claimed(const Variables& variables) {
  const auto largest = several_processes(reader(variables));
  return largest ? largest->size : 1;
}

std::string refusal(int size, const Variables& variables) {
  return core::problem_of([&] { require_whole_group(size, reader(variables)); });
}

TEST(LauncherClaims, AreReadOfEachLauncher) {
  EXPECT_EQ(claimed({{"OMPI_COMM_WORLD_SIZE", "4"}}), 4) << "also without a PMIx variable";
  EXPECT_EQ(claimed({{"PMI_SIZE", "3"}, {"PMI_RANK", "0"}}), 3);
  EXPECT_EQ(claimed({{"MV2_COMM_WORLD_SIZE", "3"}}), 3);
  EXPECT_EQ(claimed({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), 2);
  EXPECT_EQ(claimed({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "5"}, {"SLURM_NTASKS", "8"}}), 5);
  EXPECT_EQ(claimed({{"SLURM_STEP_ID", "3"}, {"SLURM_NTASKS", "8"}}), 8);
  EXPECT_EQ(claimed({{"PMIX_RANK", "2"}}), 3) << "there are the ranks 0, 1 and 2 at least";
  EXPECT_EQ(claimed({{"SLURM_STEPID", "0"}, {"SLURM_NTASKS", "2"}}), 2) << "of old releases";
  EXPECT_EQ(claimed({{"SLURM_STEP_ID", "4294967279"}, {"SLURM_NTASKS", "2"}}), 2) << "the last step of srun";
  EXPECT_EQ(claimed({{"PMI_SIZE", "4294967295"}}), INT32_MAX);
}

TEST(LauncherClaims, WhatIsOnItsOwnIsNotRefused) {
  EXPECT_EQ(claimed({}), 1);
  EXPECT_EQ(claimed({{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}}), 1) << "mpirun -n 1";
  EXPECT_EQ(claimed({{"PMI_SIZE", "1"}, {"WORLD_SIZE", "1"}, {"RANK", "0"}}), 1);
  EXPECT_EQ(claimed({{"WORLD_SIZE", "4"}}), 1) << "a variable of somebody";
  EXPECT_EQ(claimed({{"RANK", "4"}, {"WORLD_SIZE", "4"}}), 1) << "there is no rank 4";
  EXPECT_EQ(claimed({{"OMPI_COMM_WORLD_SIZE", "four"}, {"PMI_SIZE", "-2"}, {"MV2_COMM_WORLD_SIZE", "2x"}}), 1);
  EXPECT_EQ(claimed({{"PMI_SIZE", "4294967296"}}), 1) << "no launcher has such a number";
  EXPECT_EQ(claimed({{"SLURM_STEP_ID", "4294967280"}, {"SLURM_NTASKS", "4"}}), 1) << "the first special step";
  // salloc's shell, sbatch's script, srun --pty.
  EXPECT_EQ(claimed({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_NPROCS", "4"}}), 1);
  EXPECT_EQ(claimed({{"SLURM_STEP_ID", "4294967291"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}), 1);
  EXPECT_EQ(claimed({{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "4"}}), 1);
  EXPECT_EQ(claimed({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PTY_PORT", "40000"}}), 1);
  EXPECT_EQ(claimed({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "4"}}), 1);
  EXPECT_EQ(claimed({{"OMPI_COMM_WORLD_SIZE", "4"}, {kSeparateProcessesVariable, "1"}}), 1);
  EXPECT_EQ(claimed({{"OMPI_COMM_WORLD_SIZE", "4"}, {kSeparateProcessesVariable, "0"}}), 4);
}

TEST(LauncherClaims, ProcessesOfAMachineAreCounted) {
  const auto count = [](const Variables& variables) { return processes_on_machine(reader(variables)); };
  EXPECT_EQ(count({}), 1);
  EXPECT_EQ(count({{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}, {"OMPI_COMM_WORLD_SIZE", "6"}}), 3);
  EXPECT_EQ(count({{"LOCAL_WORLD_SIZE", "2"}}), 2) << "torchrun";
  EXPECT_EQ(count({{"LOCAL_WORLD_SIZE", "2x"}}), 1) << "no number of a launcher";
  Variables srun{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "9"}, {"SLURM_STEP_NUM_NODES", "2"}};
  EXPECT_EQ(count(srun), 5);
  srun["OMPI_COMM_WORLD_LOCAL_SIZE"] = "4";
  EXPECT_EQ(count(srun), 4) << "the inner launcher";
  srun.erase("OMPI_COMM_WORLD_LOCAL_SIZE");
  srun["SLURM_PTY_PORT"] = "40000";
  EXPECT_EQ(count(srun), 1) << "the shell of srun --pty is alone";
  EXPECT_EQ(count({{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "4"}}), 1) << "salloc's shell";
}

// mpirun in an allocation starts its daemons by srun, and their processes have the variables of that step.
TEST(LauncherClaims, TheInnerLauncherCounts) {
  Variables daemon{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "2"}};
  daemon["OMPI_COMM_WORLD_SIZE"] = "8";
  EXPECT_EQ(refusal(8, daemon), "");
  daemon["OMPI_COMM_WORLD_SIZE"] = "1";
  EXPECT_EQ(claimed(daemon), 1);
  const Variables torchrun{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"RANK", "3"}, {"WORLD_SIZE", "8"}};
  EXPECT_EQ(refusal(8, torchrun), "");
  const Variables leftover{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}};
  EXPECT_EQ(claimed(leftover), 2) << "torchrun's variables of one process say nothing";
}

TEST(LauncherClaims, AGroupOfAnotherSizeIsRefused) {
  EXPECT_EQ(refusal(1, {}), "");
  EXPECT_EQ(refusal(4, {}), "") << "nobody says anything";
  EXPECT_EQ(refusal(2, {{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "1"}}), "");
  EXPECT_EQ(refusal(1, {{"OMPI_COMM_WORLD_SIZE", "2"}}),
            "2 processes were started, and 1 of them has met: each group would train alone");
  EXPECT_EQ(refusal(2, {{"OMPI_COMM_WORLD_SIZE", "4"}}),
            "4 processes were started, and 2 of them have met: each group would train alone");
  EXPECT_NE(refusal(1, {{"PMI_SIZE", "2"}}), "");
  EXPECT_NE(refusal(1, {{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}, {"PMIX_RANK", "0"}}), "");
  EXPECT_NE(refusal(2, {{"OMPI_COMM_WORLD_SIZE", "2"}, {"RANK", "0"}, {"WORLD_SIZE", "4"}}), "") << "both must agree";
  EXPECT_EQ(refusal(1, {{"PMIX_RANK", "1"}}),
            "at least 2 processes were started, and 1 of them has met: each group would train alone");
  EXPECT_EQ(refusal(4, {{"PMIX_RANK", "1"}}), "");
  EXPECT_NE(refusal(1, {{"OMPI_COMM_WORLD_SIZE", "2"}, {kSeparateProcessesVariable, "1"}}), "")
      << "a group that asks for others is never on its own";
  // A group over two components of a heterogeneous job has more processes than this one's.
  Variables heterogeneous{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_HET_SIZE", "2"}};
  EXPECT_EQ(refusal(6, heterogeneous), "");
  EXPECT_NE(refusal(1, heterogeneous), "");
}

TEST(LauncherClaims, ARefusalSaysWhoSaysSoAndWhatToDo) {
  const std::string group = core::message_of([] { require_whole_group(1, reader({{"OMPI_COMM_WORLD_SIZE", "4"}})); });
  EXPECT_THAT(group, HasSubstr("Open MPI: expected OMPI_COMM_WORLD_SIZE=4, got a group of 1"));
  EXPECT_THAT(group, HasSubstr("unset OMPI_COMM_WORLD_SIZE"));
  EXPECT_EQ(core::problem_of([] { refuse_copies("write the same file", "", reader({})); }), "");
  const std::string copies = core::message_of([] {
    refuse_copies("write the same file", "use trainyard launch",
                  reader({{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}}));
  });
  EXPECT_THAT(copies, HasSubstr("2 processes were started, and each would write the same file: Slurm's srun"));
  EXPECT_THAT(copies, HasSubstr("use trainyard launch, or start one process; or set TRAINYARD_SEPARATE_PROCESSES=1"));
}

TEST(LauncherClaims, OfTwoThatSayTheSameTheFirstIsNamed) {
  const auto named = [](const Variables& variables) { return several_processes(reader(variables)).value().launcher; };
  EXPECT_EQ(named({{"OMPI_COMM_WORLD_SIZE", "4"}, {"PMI_SIZE", "4"}, {"MV2_COMM_WORLD_SIZE", "4"}}), "Open MPI");
  EXPECT_EQ(named({{"OMPI_COMM_WORLD_SIZE", "3"}, {"PMI_SIZE", "4"}, {"MV2_COMM_WORLD_SIZE", "4"}}),
            "MPICH or another PMI");
  EXPECT_EQ(named({{"PMI_SIZE", "2"}, {"RANK", "0"}, {"WORLD_SIZE", "5"}}), "torchrun");
}

}  // namespace
}  // namespace trainyard::parallel::launcher_claims_test
