// Settings that libraries read when they are loaded: the program is to be started again with them, and only where they
// differ from those that it has.
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/core/testing/environment.h"

namespace trainyard::cli::restart_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;

class Restart : public ::testing::Test {
 protected:
  // Returns the settings with which a training of one step asks to be started again, which it is not.
  std::vector<std::string> settings_of(const Arguments& more, int expected = kSuccess) {
    std::vector<std::string> settings;
    std::ostringstream out;
    Console console{.out = out, .restart_with = [&](const std::string& setting) { settings.push_back(setting); }};
    ::testing::internal::CaptureStderr();
    const int code = run(
        with_flags({"train", "--model=trivial", "--data_name=cifar10", "--synthetic", "--device=cpu", "--batch_size=2",
                    "--num_batches=1", "--num_warmup_batches=0", "--num_intra_threads=1", "--train_dir="},
                   more),
        console);
    err_ = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(code, expected) << err_;
    return settings;
  }

  std::string err_;
  const core::EnvironmentVariable spins_{"GOMP_SPINCOUNT", {}};
};

TEST_F(Restart, IsNotAskedForByTheDefaults) {
  EXPECT_THAT(settings_of({}), IsEmpty());
  EXPECT_THAT(settings_of({"--max_cpu_isa=auto"}), IsEmpty()) << "whatever the limit of this process is";
}

TEST_F(Restart, HasTheInstructionSetThatIsAskedFor) {
  for (const std::string limit : {"avx2", "avx512"}) {
    if (core::parse_cpu_isa_limit(limit) == core::cpu_isa_limit()) {
      EXPECT_THAT(settings_of({"--max_cpu_isa=" + limit}), IsEmpty()) << limit;
    } else {
      EXPECT_THAT(settings_of({"--max_cpu_isa=" + limit}, kUsage), ElementsAre("TRAINYARD_MAX_CPU_ISA=" + limit));
      EXPECT_THAT(err_, HasSubstr("--max_cpu_isa must be known when the process begins"));
    }
  }
}

TEST_F(Restart, HasTheTurnsThatIdleThreadsSpin) {
  EXPECT_THAT(settings_of({"--kmp_blocktime=5"}), ElementsAre("GOMP_SPINCOUNT=500000"));
  EXPECT_THAT(err_, HasSubstr("kmp_blocktime has no effect: it needs GOMP_SPINCOUNT=500000 in the environment"));
  spins_.set("500000");
  EXPECT_THAT(settings_of({"--kmp_blocktime=5"}), IsEmpty()) << "the process has it";
  spins_.set("7");
  EXPECT_THAT(settings_of({"--kmp_blocktime=5"}), ElementsAre("GOMP_SPINCOUNT=500000"));
  EXPECT_EQ(err_.find("the default of kmp_blocktime replaces"), std::string::npos) << err_;
  EXPECT_THAT(settings_of({"--mkl", "--kmp_affinity=none"}), ElementsAre("GOMP_SPINCOUNT=0"));
  EXPECT_THAT(err_, HasSubstr("mkl: the default of kmp_blocktime replaces GOMP_SPINCOUNT=7 of the environment"));
}

}  // namespace
}  // namespace trainyard::cli::restart_test
