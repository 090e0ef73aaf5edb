// Switches of mistakes that are compiled together. scripts/mutate_room links this file into the test program.
//
// TRAINYARD_MUTANT is the number of the mistake that is made; 0 or absent: none. TRAINYARD_MUTANT_SEEN is a folder into
// which each process writes the numbers that each test reaches: lines of test, milliseconds, whether it failed, and
// numbers, with tabs between. What the initial values of variables reach is of the test "*".
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

extern "C" {
int trainyard_mutant_active = 0;
unsigned char trainyard_mutant_seen[TRAINYARD_MUTANTS + 1] = {};
}

namespace {

constexpr const char* kTest =
    "TRAINYARD_MUTANT_TEST";  // for the processes that a test starts: what they see is the test's

const char* folder() {
  return std::getenv("TRAINYARD_MUTANT_SEEN");
}

void write_seen(const std::string& test, long long milliseconds, bool failed) {
  const std::string path = std::string(folder()) + "/" + std::to_string(getpid());
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return;
  std::fprintf(file, "%s\t%lld\t%d\t", test.c_str(), milliseconds, failed ? 1 : 0);
  for (int number = 1; number <= TRAINYARD_MUTANTS; ++number) {
    if (trainyard_mutant_seen[number] != 0) std::fprintf(file, "%d ", number);
    trainyard_mutant_seen[number] = 0;
  }
  std::fprintf(file, "\n");
  std::fclose(file);
}

std::string name_of(const testing::TestInfo& test) {
  return std::string(test.test_suite_name()) + "." + test.name();
}

class SeenByTests : public testing::EmptyTestEventListener {
  void OnTestProgramStart(const testing::UnitTest&) override { write_seen("*", 0, false); }
  void OnTestStart(const testing::TestInfo& test) override { setenv(kTest, name_of(test).c_str(), 1); }
  void OnTestEnd(const testing::TestInfo& test) override {
    if (getpid() != process_) return;  // a test has forked
    write_seen(name_of(test), test.result()->elapsed_time(), test.result()->Failed());
  }
  const pid_t process_ = getpid();
};

void write_rest() {
  const char* test = std::getenv(kTest);
  write_seen(test != nullptr ? test : "-", 0, false);
}

// Before the initial values of other sources, which may come by a switch.
__attribute__((constructor(101))) void read_active() {
  const char* number = std::getenv("TRAINYARD_MUTANT");
  trainyard_mutant_active = number != nullptr ? std::atoi(number) : 0;
}

const bool listens = [] {
  if (folder() == nullptr) return false;
  if (std::getenv(kTest) == nullptr) testing::UnitTest::GetInstance()->listeners().Append(new SeenByTests);
  std::atexit(write_rest);
  return true;
}();

}  // namespace
