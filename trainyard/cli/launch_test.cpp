// What `trainyard launch` would start. That it does, tests/launch sees.
#include "trainyard/parallel/launch/launch.h"

#include <array>
#include <filesystem>
#include <sstream>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::cli::launch_test {
namespace {

std::string refusal_of(const Arguments& arguments) {
  Arguments all{"launch", "--dry_run"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const CommandResult result = run_command(all);
  EXPECT_EQ(result.code, kUsage) << result.out;
  return result.err;
}

TEST(Launch, TakesTheCommandBehindTheDashesAsItIs) {
  const CommandResult result =
      run_command({"launch", "-n", "3", "--dry_run", "--", "train", "--model=it's", "-n", "4"});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_NE(result.out.find(" -n 3 "), std::string::npos) << result.out;
  EXPECT_TRUE(result.out.ends_with(" launch-rank -- " + std::string(std::filesystem::read_symlink("/proc/self/exe")) +
                                   " train '--model=it'\\''s' -n 4\n"))
      << result.out;
}

TEST(Launch, RefusesWhatMakesNoSense) {
  EXPECT_NE(refusal_of({"-n", "2"}).find("nothing to launch"), std::string::npos);
  EXPECT_NE(refusal_of({"-nohelp"}).find("nothing to launch"), std::string::npos) << "not -n with a value";
  for (const char* const flag : {"-num_ranks=2", "--num_ranks=2", "-np"}) {
    EXPECT_NE(refusal_of({flag, "--", "models"}).find("did you mean --ranks?"), std::string::npos) << flag;
  }
  EXPECT_NE(refusal_of({"-n", "2", "--", "launch", "-n", "2"}).find("cannot be launched"), std::string::npos);
  EXPECT_NE(refusal_of({"--hosts=a:2", "--", "models"}).find("--network=10.0.0.0/24"), std::string::npos);
  EXPECT_NE(refusal_of({"-n", "0", "--", "models"}).find("ranks"), std::string::npos);
}

TEST(Launch, TellsEachProcessOfAClusterWhatItIs) {
  const CommandResult result =
      run_command({"launch", "--ps=1", "--workers=2", "--dry_run", "--hosts=10.0.0.1:1,10.0.0.2:2",
                   "--network=127.0.0.0/8", "--", "train", "--model=lenet"});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_NE(result.out.find(" -n 3 "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find(" launch-rank '--job_name=ps --task_index=0' '--job_name=worker --task_index=0' "
                            "'--job_name=worker --task_index=1' -- "),
            std::string::npos)
      << result.out;
  EXPECT_TRUE(
      result.out.ends_with(" train --model=lenet --ps_hosts=10.0.0.1:2222 "
                           "--worker_hosts=10.0.0.2:2222,10.0.0.2:2223\n"))
      << result.out;
}

TEST(Launch, RefusesClustersThatMakeNoSense) {
  EXPECT_NE(refusal_of({"--ps=1", "--", "train"}).find("needs workers"), std::string::npos);
  EXPECT_NE(refusal_of({"--ps=1", "--workers=2", "-n", "3", "--", "train"}).find("leave --ranks out"),
            std::string::npos);
  EXPECT_NE(refusal_of({"--ps=1", "--workers=2", "--program=x"}).find("leave --program out"), std::string::npos);
  EXPECT_NE(refusal_of({"--first_port=1", "--", "train"}).find("--first_port is of"), std::string::npos);
}

TEST(Launch, FewerRanksMustShareTheBatchEvenly) {
  const auto refused = [](const Arguments& more) {
    Arguments arguments{"-n", "4", "--max_restarts=1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return refusal_of(arguments);
  };
  EXPECT_NE(refused({"--min_ranks=3", "--", "train", "--batch_size=32"})
                .find("no number of ranks from 3 to 3 shares 128 images a step evenly: --min_ranks"),
            std::string::npos);
  EXPECT_NE(refused({"--min_ranks=3", "--", "train", "--batch_size=32"}).find("allow 1, 2 ranks"), std::string::npos);
  EXPECT_NE(refused({"--min_ranks=3", "--", "train"}).find("add --batch_size"), std::string::npos);
  EXPECT_NE(refused({"--min_ranks=4", "--", "train", "--batch_size=3"}).find("no fewer ranks"), std::string::npos);
  EXPECT_NE(refused({"--min_ranks=1", "--", "models"}).find("only a training"), std::string::npos);
}

TEST(Launch, FewerRanksGetTheBatchesOfAll) {
  const CommandResult result = run_command({"launch", "-n", "6", "--dry_run", "--min_ranks=2", "--max_restarts=1", "--",
                                            "--batch_size", "4", "--model=lenet"});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(count_lines(result.out, "mpirun"), 4) << result.out;
  EXPECT_EQ(count_lines(result.out, " -n 6 .* --batch_size 4 --model=lenet$"), 1);
  EXPECT_EQ(count_lines(result.out, " -n 4 .* --model=lenet --batch_size=6$"), 1);
  EXPECT_EQ(count_lines(result.out, " -n 3 .* --model=lenet --batch_size=8$"), 1);
  EXPECT_EQ(count_lines(result.out, " -n 2 .* --model=lenet --batch_size=12$"), 1);
}

TEST(Launch, FewerRanksReplaceABatchSizeOfOneDash) {
  const CommandResult result = run_command({"launch", "-n", "4", "--dry_run", "--min_ranks=2", "--max_restarts=1", "--",
                                            "train", "-batch_size", "3", "--model=lenet"});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(count_lines(result.out, "mpirun"), 3) << result.out;
  EXPECT_EQ(count_lines(result.out, " -n 4 .* train -batch_size 3 --model=lenet$"), 1) << result.out;
  EXPECT_EQ(count_lines(result.out, " -n 3 .* train --model=lenet --batch_size=4$"), 1) << result.out;
  EXPECT_EQ(count_lines(result.out, " -n 2 .* train --model=lenet --batch_size=6$"), 1) << result.out;
}

// The mean over replicas of the same images stays what it is; the sum of fewer replicas' means is smaller.
TEST(Launch, FewerRanksThatSumGradientsAreWarnedOf) {
  const auto warns = [](const Arguments& flags) {
    Arguments all{"launch",           "-n", "4",     "--dry_run",     "--min_ranks=2",
                  "--max_restarts=1", "--", "train", "--batch_size=3"};
    all.insert(all.end(), flags.begin(), flags.end());
    const CommandResult result = run_command(all);
    EXPECT_EQ(result.code, kSuccess) << result.err;
    return result.err.find("fewer ranks sum up to less") != std::string::npos;
  };
  const std::string sums = "--variable_update=collective_all_reduce", rate = "--init_learning_rate=0.1";
  EXPECT_TRUE(warns({sums, rate}));
  EXPECT_TRUE(warns({"--variable_update=horovod", "--horovod_reduce=sum", rate}));
  EXPECT_FALSE(warns({"--variable_update=horovod", rate}));
  EXPECT_FALSE(warns({sums, rate, "--gradient_reduction=mean"}));
  EXPECT_FALSE(warns({sums, rate, "--learning_rate_scaling=linear"})) << "the rate follows the sum";
  EXPECT_FALSE(warns({sums})) << "the model's own rate does, too";
}

// A restart has the flags of the first start.
TEST(Launch, RestartsGoOnWithWhatTheRunHasSaved) {
  for (const std::string existing : {"back_up", "delete", "new_name"}) {
    const Arguments train{"train", "--train_dir=out", "--existing_run=" + existing};
    Arguments restarted{"-n", "2", "--max_restarts=1", "--"}, once{"launch", "-n", "2", "--dry_run", "--"};
    restarted.insert(restarted.end(), train.begin(), train.end());
    once.insert(once.end(), train.begin(), train.end());
    EXPECT_NE(refusal_of(restarted).find("a restart would not go on with the run"), std::string::npos) << existing;
    EXPECT_EQ(run_command(once).code, kSuccess) << existing;
  }
  const auto warning_of = [](const Arguments& command) {
    Arguments all{"launch", "-n", "2", "--dry_run", "--max_restarts=1", "--"};
    all.insert(all.end(), command.begin(), command.end());
    const CommandResult result = run_command(all);
    EXPECT_EQ(result.code, kSuccess) << result.err;
    return result.err;
  };
  EXPECT_NE(warning_of({"train", "--model=lenet"}).find("without --train_dir"), std::string::npos);
  EXPECT_NE(warning_of({"--model=lenet"}).find("without --train_dir"), std::string::npos);
  for (const Arguments& quiet : {Arguments{"train", "--train_dir=out", "--existing_run=keep"}, Arguments{"--eval"},
                                 Arguments{"eval"}, Arguments{"train", "--no_such_flag"}}) {
    EXPECT_EQ(warning_of(quiet).find("--max_restarts"), std::string::npos) << quiet.back();
  }
}

// What its words mean is its own affair.
TEST(Launch, AProgramOfTheUserGoesOnWithEachNumberOfRanks) {
  const CommandResult result = run_command(
      {"launch", "-n", "4", "--program=/bin/true", "--min_ranks=2", "--max_restarts=1", "--dry_run", "--", "word"});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(count_lines(result.out, "mpirun"), 3) << result.out;
  for (const std::string ranks : {"4", "3", "2"}) {
    EXPECT_EQ(count_lines(result.out, " -n " + ranks + " .* launch-rank -- /bin/true word$"), 1) << result.out;
  }
}

TEST(Launch, RefusalsTellTheNumbers) {
  EXPECT_NE(refusal_of({"-n", "4", "--max_restarts=1", "--min_ranks=4", "--", "train", "--batch_size=3"})
                .find("--min_ranks: got 4 of 4; use a smaller number"),
            std::string::npos);
  EXPECT_NE(refusal_of({"-n", "4", "--max_restarts=1", "--min_ranks=3", "--", "train", "--batch_size=32"})
                .find("--min_ranks: got 4 ranks with --batch_size=32; allow 1, 2 ranks, or use another --batch_size"),
            std::string::npos);
  EXPECT_NE(refusal_of({"-n", "4", "--max_restarts=1", "--min_ranks=3", "--", "train", "--batch_size=auto"})
                .find("add --batch_size"),
            std::string::npos);
  EXPECT_NE(refusal_of({"--ps=1", "--workers=2", "--min_ranks=1", "--max_restarts=1", "--", "train"})
                .find("leave --min_ranks out"),
            std::string::npos);
  EXPECT_NE(refusal_of({"--workers=2", "--program=x"}).find("leave --program out"), std::string::npos);
  EXPECT_NE(refusal_of({"--controller", "--", "train"}).find("add --workers=2"), std::string::npos);
}

// A launch does not start ranks again that would find the same.
TEST(Launch, ARankSaysThatItsDataAreWrong) {
  const Arguments predict{"predict", "--weights=/no/such/weights.safetensors", "x.png"};
  EXPECT_EQ(run_command(predict).code, kFailure);
  const core::EnvironmentVariable launched(parallel::kRankOfLaunchVariable, "1");
  EXPECT_EQ(run_command(predict).code, parallel::kWrongData);
  EXPECT_EQ(run_command({"predict"}).code, kUsage);
}

// The folders are in front of the dashes, the command behind them. Launch starts it in a process of its own, with a
// pipe whose other end it holds.
TEST(Launch, TheKeeperRunsTheCommandBehindTheDashesAndRemovesTheFoldersInFront) {
  const core::TempDir temp;
  const std::string first = temp.file("first"), second = temp.file("second");
  for (const std::string& folder : {first, second}) core::local_file_system().make_directories(folder);
  std::array<int, 2> control{};
  ASSERT_EQ(::pipe2(control.data(), O_CLOEXEC), 0);
  const pid_t process = ::fork();
  ASSERT_GE(process, 0);
  if (process == 0) {
    ::dup2(control[0], STDIN_FILENO);
    std::ostringstream out;
    Console console{out, core::StopSource().token(), {}};
    ::_exit(run({"launch-keeper", first, second, "--", "sh", "-c", "exit 7"}, console));
  }
  int status = -1;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  for (const int descriptor : control) ::close(descriptor);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_FALSE(core::local_file_system().exists(first));
  EXPECT_FALSE(core::local_file_system().exists(second));
}

TEST(Launch, ItsOwnModesAreNotForUsers) {
  EXPECT_EQ(run_command({"launch-rank", "--", "true"}).code, kUsage);
  EXPECT_EQ(run_command({"launch-keeper", "--"}).code, kUsage);
  EXPECT_EQ(run_command({"--help"}).out.find("launch-"), std::string::npos);
}

}  // namespace
}  // namespace trainyard::cli::launch_test
