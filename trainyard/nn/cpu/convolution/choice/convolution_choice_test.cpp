// The file of choices, and what measuring makes of the times that it sees.
#include "trainyard/nn/cpu/convolution/choice/convolution_choice.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::nn::cpu::convolution_choice_test {
namespace {

using Choice = ConvolutionChoices::Choice;
const Choice kDirect{ConvolutionAlgorithm::kDirect,
                     {{ConvolutionAlgorithm::kDirect, 0.001}, {ConvolutionAlgorithm::kWinograd, 0.002}}};
const Choice kWinograd{ConvolutionAlgorithm::kWinograd,
                       {{ConvolutionAlgorithm::kWinograd4, 0.0035},
                        {ConvolutionAlgorithm::kWinograd, 0.003},
                        {ConvolutionAlgorithm::kDirect, 0.004}}};

TEST(ConvolutionChoices, AreThereInTheNextProcess) {
  const core::TempDir temp;
  const std::string file = temp.file("cache/convolutions.txt");
  ConvolutionChoices(file).add("a shape, with spaces", kWinograd);
  ConvolutionChoices(file).add("another", kDirect);
  const ConvolutionChoices later(file);
  ConvolutionChoices(file).add("by the rule", {.algorithm = ConvolutionAlgorithm::kWinograd});
  EXPECT_EQ(ConvolutionChoices(file).find("by the rule")->algorithm, ConvolutionAlgorithm::kWinograd);
  ASSERT_TRUE(later.find("a shape, with spaces"));
  EXPECT_EQ(later.find("a shape, with spaces")->algorithm, ConvolutionAlgorithm::kWinograd);
  EXPECT_EQ(later.find("a shape, with spaces")->seconds, kWinograd.seconds);
  EXPECT_EQ(later.find("another")->algorithm, ConvolutionAlgorithm::kDirect);
  EXPECT_FALSE(later.find("a third"));
}

TEST(ConvolutionChoices, TheFirstOfTwoProcessesThatMeasureHolds) {
  const core::TempDir temp;
  ConvolutionChoices first(temp.file("choices.txt")), second(temp.file("choices.txt"));
  first.add("shape", kWinograd);
  EXPECT_EQ(second.add("shape", kDirect).algorithm, ConvolutionAlgorithm::kWinograd);
  EXPECT_EQ(first.add("shape", kDirect).algorithm, ConvolutionAlgorithm::kWinograd);
}

// Executors of one process must agree, whatever others write meanwhile.
TEST(ConvolutionChoices, WhatAProcessHasUsedStays) {
  const core::TempDir temp;
  ConvolutionChoices used(temp.file("choices.txt"));
  used.add("shape", kWinograd);
  core::local_file_system().remove_file(temp.file("choices.txt"));
  ConvolutionChoices(temp.file("choices.txt")).add("shape", kDirect);
  ConvolutionChoices(temp.file("choices.txt")).add("of another", kDirect);
  used.add("next", kDirect);
  EXPECT_EQ(used.find("shape")->algorithm, ConvolutionAlgorithm::kWinograd);
  EXPECT_EQ(used.all().size(), 3U);
}

// As after an update of oneDNN, whose file names what the new version lacks.
TEST(ConvolutionChoices, WhatIsNotThereMakesRoom) {
  const core::TempDir temp;
  const std::string file = temp.file("choices.txt");
  const auto no_winograd = [](ConvolutionAlgorithm algorithm) { return algorithm != ConvolutionAlgorithm::kWinograd; };
  ConvolutionChoices early(file);  // knows nothing of what another process keeps meanwhile
  ConvolutionChoices(file).add("shape", kWinograd);
  EXPECT_EQ(early.add("shape", kDirect, no_winograd).algorithm, ConvolutionAlgorithm::kDirect);
  EXPECT_EQ(ConvolutionChoices(file).find("shape")->algorithm, ConvolutionAlgorithm::kDirect);
  early.add("another", kWinograd);
  EXPECT_EQ(early.add("another", kDirect, no_winograd).algorithm, ConvolutionAlgorithm::kDirect);
  EXPECT_EQ(ConvolutionChoices(file).find("another")->algorithm, ConvolutionAlgorithm::kDirect);
  EXPECT_EQ(early.add("another", {.algorithm = ConvolutionAlgorithm::kAmx}, no_winograd).algorithm,
            ConvolutionAlgorithm::kDirect)
      << "what is there stays";
}

TEST(ConvolutionChoices, WarnOnceOfAFileThatCannotBeWritten) {
  const core::TempDir temp;
  core::local_file_system().write_file_atomically(temp.file("no folder"), "");
  ConvolutionChoices choices(temp.file("no folder/choices.txt"));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(choices.add("shape", kWinograd).algorithm, ConvolutionAlgorithm::kWinograd);
  EXPECT_EQ(choices.add("another", kDirect).algorithm, ConvolutionAlgorithm::kDirect);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("measured convolutions are not kept: "), std::string::npos) << said;
  EXPECT_EQ(said.find("not kept"), said.rfind("not kept")) << said;
  EXPECT_EQ(choices.all().size(), 2U);
}

TEST(ConvolutionChoices, WarnOfAFileThatCannotBeRead) {
  const core::TempDir temp;
  ::testing::internal::CaptureStderr();
  const bool none = ConvolutionChoices(temp.file(std::string(300, 'x'))).all().empty();  // too long a name
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("measured convolutions are not used: "), std::string::npos);
  EXPECT_TRUE(none);
}

TEST(ConvolutionChoices, SayWhatToRemoveWhereThereIsAFile) {
  const std::string busy =
      "other programs use the processor: from here on, new convolutions follow the rule of --deterministic; ";
  EXPECT_EQ(describe_busy_machine(ConvolutionChoices("/cache/choices.txt")),
            busy + "to measure them on an idle machine, remove /cache/choices.txt");
  EXPECT_EQ(describe_busy_machine(ConvolutionChoices("")), busy + "a run on an idle machine measures them");
}

// Sorted by description. A choice by the rule has no times.
TEST(ConvolutionChoices, AreLinesOfAFile) {
  const core::TempDir temp;
  ConvolutionChoices choices(temp.file("choices.txt"));
  EXPECT_EQ(choices.file(), temp.file("choices.txt"));
  choices.add("second shape", kWinograd);
  choices.add("first shape", {.algorithm = ConvolutionAlgorithm::kStrassen});
  EXPECT_EQ(core::local_file_system().read_file(temp.file("choices.txt")),
            "trainyard convolutions 9\nstrassen\tfirst shape\n"
            "winograd\tsecond shape\twinograd4=0.003500000\twinograd=0.003000000\tdirect=0.004000000\n");
}

TEST(ConvolutionChoices, NameEachAlgorithm) {
  using Algorithm = ConvolutionAlgorithm;
  const std::map<Algorithm, std::string> names = {{Algorithm::kDirect, "direct"},
                                                  {Algorithm::kWinograd, "winograd"},
                                                  {Algorithm::kWinograd4, "winograd4"},
                                                  {Algorithm::kWinograd2, "winograd2"},
                                                  {Algorithm::kWinograd3, "winograd3"},
                                                  {Algorithm::kPointwise, "pointwise"},
                                                  {Algorithm::kStrassen, "strassen"},
                                                  {Algorithm::kPixelPairs, "pixel_pairs"},
                                                  {Algorithm::kAmx, "amx"},
                                                  {Algorithm::kLibtorch, "libtorch"}};
  for (const auto& [algorithm, name] : names) EXPECT_EQ(name_of(algorithm), name);
}

TEST(ConvolutionChoices, LivesWithoutAFileAndWithABadOne) {
  EXPECT_EQ(ConvolutionChoices("").add("shape", kWinograd).algorithm, ConvolutionAlgorithm::kWinograd);
  const core::TempDir temp;
  core::local_file_system().write_file_atomically(temp.file("bad.txt"), "something else\n1\t2\tshape\n");
  EXPECT_TRUE(ConvolutionChoices(temp.file("bad.txt")).all().empty());
  core::local_file_system().write_file_atomically(temp.file("old.txt"),
                                                  "trainyard convolutions 8\nwinograd\tgood\twinograd=0.5\n");
  EXPECT_TRUE(ConvolutionChoices(temp.file("old.txt")).all().empty()) << "of other kernels";
  core::local_file_system().write_file_atomically(
      temp.file("half.txt"),
      "trainyard convolutions 9\nwinograd\tgood\twinograd=0.5\tdirect=1\ndirect\tbad\tdirect=x\n"
      "fft\tunknown\tfft=1\ndirect\tof a later version\tfft=2\n0.5\ndirect\t\tdirect=1\n");
  EXPECT_EQ(ConvolutionChoices(temp.file("half.txt")).all().size(), 1U);
}

// A clock that says what the test wants: the times of an algorithm's runs, one after the other, the last for ever. The
// first one warms up.
class FakeTimer {
 public:
  explicit FakeTimer(std::map<ConvolutionAlgorithm, std::vector<TrialRun>> runs) : runs_(std::move(runs)) {}
  TrialRun operator()(ConvolutionAlgorithm algorithm) {
    const std::vector<TrialRun>& all = runs_.at(algorithm);
    return all[std::min(static_cast<size_t>(asked_[algorithm]++), all.size() - 1)];
  }
  int asked(ConvolutionAlgorithm algorithm) { return asked_[algorithm]; }

 private:
  std::map<ConvolutionAlgorithm, std::vector<TrialRun>> runs_;
  std::map<ConvolutionAlgorithm, int> asked_;
};

using Times = decltype(Choice::seconds);
constexpr auto kPlainly = ConvolutionAlgorithm::kDirect, kFewer = ConvolutionAlgorithm::kWinograd,
               kMatrix = ConvolutionAlgorithm::kAmx, kOfLibtorch = ConvolutionAlgorithm::kLibtorch;

TEST(Fastest, TakesTheOneWithTheFastestRun) {
  // The warm-up does not count, nor does one slow run among fast ones.
  FakeTimer timer({{kPlainly, {{0.00025}, {0.0005}}},
                   {kFewer, {{0.0005}, {0.0006}, {0.00025}, {0.0007}}},
                   {kMatrix, {{0.0005}, {0.000375}}}});
  const auto choice = fastest({kPlainly, kFewer, kMatrix}, std::ref(timer));
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->algorithm, kFewer);
  EXPECT_EQ(choice->seconds, (Times{{kPlainly, 0.0005}, {kFewer, 0.00025}, {kMatrix, 0.000375}}));
  EXPECT_EQ(timer.asked(kFewer), 1 + 25);
}

TEST(Fastest, TakesAmxWhereItWinsAndOnlyThere) {
  for (const auto& [time, expected] : {std::pair{0.3, kMatrix}, {0.4, kPlainly}, {0.5, kPlainly}}) {
    FakeTimer timer({{kPlainly, {{0.4}}}, {kMatrix, {{time}}}});
    const auto choice = fastest({kPlainly, kMatrix}, std::ref(timer));
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->algorithm, expected) << time;
    EXPECT_EQ(choice->seconds, (Times{{kPlainly, 0.4}, {kMatrix, time}}));
  }
}

TEST(Fastest, TakesLibtorchWhereItWinsAndOnlyThere) {
  for (const auto& [time, expected] : {std::pair{0.25, kOfLibtorch}, {0.3, kMatrix}, {0.5, kMatrix}}) {
    FakeTimer timer({{kMatrix, {{0.3}}}, {kPlainly, {{0.4}}}, {kOfLibtorch, {{time}}}});
    const auto choice = fastest({kMatrix, kPlainly, kOfLibtorch}, std::ref(timer));
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->algorithm, expected) << time;
    EXPECT_EQ(choice->seconds, (Times{{kMatrix, 0.3}, {kPlainly, 0.4}, {kOfLibtorch, time}}));
  }
}

TEST(Fastest, RunsShortKernelsOften) {
  FakeTimer timer({{kPlainly, {{0.0011}}}, {kMatrix, {{0.001}}}});
  ASSERT_TRUE(fastest({kPlainly, kMatrix}, std::ref(timer)));
  EXPECT_EQ(timer.asked(kPlainly), 1 + 15) << "until 30 ms are used up";
  FakeTimer shorter({{kPlainly, {{0.00011}}}, {kMatrix, {{0.0001}}}});
  ASSERT_TRUE(fastest({kPlainly, kMatrix}, std::ref(shorter)));
  EXPECT_EQ(shorter.asked(kPlainly), 1 + 25);
}

TEST(Fastest, CountsUndisturbedRunsOnly) {
  FakeTimer timer({{kPlainly, {{0.009}, {0.0025}, {0.005}}}, {kMatrix, {{0.009}, {0.00125, true}, {0.00625}}}});
  const auto choice = fastest({kPlainly, kMatrix}, std::ref(timer));
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->algorithm, kPlainly);
  EXPECT_EQ(choice->seconds, (Times{{kPlainly, 0.0025}, {kMatrix, 0.00625}}))
      << "0.0025 was in the turn of a disturbed run";
  FakeTimer busy({{kPlainly, {{0.01}}}, {kMatrix, {{0.01, true}}}});
  EXPECT_FALSE(fastest({kPlainly, kMatrix}, std::ref(busy)));
}

TEST(Fastest, NeedsNoTurnWithoutAnyDisturbance) {
  std::map<ConvolutionAlgorithm, int> runs;
  const auto in_turns = [&](ConvolutionAlgorithm algorithm) {
    const bool even = runs[algorithm]++ % 2 == 0;
    return TrialRun{algorithm == kMatrix ? 0.01 : 0.02, even == (algorithm == kMatrix)};
  };
  const auto choice = fastest({kPlainly, kMatrix}, in_turns);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->seconds, (Times{{kPlainly, 0.02}, {kMatrix, 0.01}}));
}

TEST(Fastest, RunsLongKernelsOnce) {
  FakeTimer timer({{kPlainly, {{0.012}}}, {kMatrix, {{0.011}}}});
  const auto choice = fastest({kPlainly, kMatrix}, std::ref(timer));
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->algorithm, kMatrix);
  EXPECT_EQ(choice->seconds, (Times{{kPlainly, 0.012}, {kMatrix, 0.011}}));
  EXPECT_EQ(timer.asked(kPlainly) + timer.asked(kMatrix), 2) << "those that warm up";
  FakeTimer shorter({{kPlainly, {{0.0101}, {0.005}}}, {kMatrix, {{0.0099}}}});
  EXPECT_EQ(fastest({kPlainly, kMatrix}, std::ref(shorter)).value_or(kWinograd).algorithm, kPlainly);
  EXPECT_GT(shorter.asked(kMatrix), 1) << "20 ms are not more than 20 ms";
}

TEST(Fastest, RunsLongKernelsAgainThatWereDisturbed) {
  FakeTimer timer({{kPlainly, {{0.012}}}, {kMatrix, {{0.013, true}, {0.001, true}, {0.011}}}});
  const auto choice = fastest({kPlainly, kMatrix}, std::ref(timer));
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->algorithm, kMatrix);
  EXPECT_EQ(choice->seconds, (Times{{kPlainly, 0.012}, {kMatrix, 0.011}}));
  EXPECT_EQ(timer.asked(kPlainly), 1) << "its first run counted";
  EXPECT_EQ(timer.asked(kMatrix), 3) << "however short a turn was";
}

TEST(Fastest, DoesNotTellApartWhatIsAtPar) {
  // 4 % apart at most, of those that are left: the slow one does not count.
  FakeTimer timer({{kPlainly, {{0.00104}}}, {kMatrix, {{0.001}}}, {kFewer, {{0.003}}}});
  EXPECT_EQ(fastest({kPlainly, kMatrix, kFewer}, std::ref(timer)).value_or(kDirect).algorithm, kMatrix);
  EXPECT_EQ(timer.asked(kMatrix), 1 + 3);
  FakeTimer apart({{kPlainly, {{0.00105}}}, {kMatrix, {{0.001}}}});
  ASSERT_TRUE(fastest({kPlainly, kMatrix}, std::ref(apart)));
  EXPECT_EQ(apart.asked(kMatrix), 1 + 15) << "until 30 ms are used up";
  // In the best runs so far.
  FakeTimer later({{kPlainly, {{0.0011}, {0.0011}, {0.0011}, {0.0011}, {0.00102}}}, {kMatrix, {{0.001}}}});
  ASSERT_TRUE(fastest({kPlainly, kMatrix}, std::ref(later)));
  EXPECT_EQ(later.asked(kMatrix), 1 + 4);
}

TEST(Fastest, GivesUpWhatIsSlow) {
  struct Case {
    std::vector<TrialRun> runs;  // the other's take 1 ms each
    int asked;
    double seconds;
  };
  for (const Case& one : {Case{{{0.0021}, {0.0001}}, 1, 0.0021},           // as it warms up
                          Case{{{0.002}, {0.0016}, {0.0001}}, 2, 0.0016},  // in the first run
                          Case{{{0.002}, {0.0013}, {0.00125}, {0.0001}}, 3, 0.00125}}) {
    FakeTimer timer({{kPlainly, {{0.001}}}, {kMatrix, one.runs}});
    const auto choice = fastest({kPlainly, kMatrix}, std::ref(timer));
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->seconds, (Times{{kPlainly, 0.001}, {kMatrix, one.seconds}}));
    EXPECT_EQ(choice->algorithm, kPlainly);
    EXPECT_EQ(timer.asked(kMatrix), one.asked);
    EXPECT_EQ(timer.asked(kPlainly), std::max(2, one.asked)) << "one that is left needs one run";
  }
}

TEST(Fastest, GivesUpNothingThatWasOnlyDisturbed) {
  // A disturbed run decides nothing when it is slow; a fast one says that the algorithm is fast, and so does its
  // warm-up.
  for (const std::vector<TrialRun>& runs : {std::vector<TrialRun>{{0.005, true}, {0.0005}},
                                            {{0.001}, {0.005, true}, {0.0005}},
                                            {{0.001}, {0.0016}, {0.0005}},
                                            {{0.002}, {0.001, true}, {0.0016}, {0.0005}}}) {
    FakeTimer timer({{kPlainly, {{0.001}}}, {kMatrix, runs}});
    EXPECT_EQ(fastest({kPlainly, kMatrix}, std::ref(timer)).value_or(kDirect).algorithm, kMatrix);
  }
}

// What disturbs later takes nothing away from three runs that were undisturbed.
TEST(Fastest, IsContentWithFewRunsOnABusyMachine) {
  int runs = 0;
  const auto disturbed_later = [&](ConvolutionAlgorithm algorithm) {
    return TrialRun{algorithm == kPlainly ? 0.00095 : 0.00105, ++runs > 2 * (1 + 3)};
  };
  EXPECT_TRUE(fastest({kPlainly, kMatrix}, disturbed_later));
  EXPECT_NEAR(runs, 2 * (1 + 3 + 131), 4) << "turns of 2 ms go on until 250 ms and six turns are lost";
}

TEST(Fastest, KeepsToItsTime) {
  const auto times = [](double most_seconds) {
    FakeTimer timer({{kPlainly, {{0.001}, {0.0005}, {0.0004}}}, {kMatrix, {{0.001}, {0.0005}, {0.00039}}}});
    const auto choice = fastest({kPlainly, kMatrix}, std::ref(timer), most_seconds);
    return std::pair(timer.asked(kPlainly), choice.value_or(kDirect).seconds);
  };
  // Warming up takes 2 ms, and a first turn is expected to take as long. It takes 1 ms, the next 0.79 ms, and there
  // is no time for a third.
  EXPECT_EQ(times(0.0035), std::pair(1, Times()));
  EXPECT_EQ(times(0.004), std::pair(3, Times{{kPlainly, 0.0004}, {kMatrix, 0.00039}}));
  EXPECT_EQ(times(0.00399).first, 1);
  FakeTimer slow({{kPlainly, {{0.001}}}, {kMatrix, {{0.0014}}}});
  const auto choice = fastest({kPlainly, kMatrix}, std::ref(slow), 0.0065);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->algorithm, kPlainly);
  EXPECT_EQ(slow.asked(kMatrix), 2) << "one turn that counts, and no time for another";
}

TEST(ConvolutionChoices, SayWhatWasTried) {
  EXPECT_EQ(describe_times(kWinograd), "winograd4 3.5 ms, winograd 3 ms, direct 4 ms");
  EXPECT_EQ(describe_times(kDirect), "direct 1 ms, winograd 2 ms");
  EXPECT_EQ(describe_times({.algorithm = kMatrix}), "by the rule");
  ConvolutionChoices measured("");
  measured.add("b", kWinograd);
  measured.add("c", kDirect);
  KernelChoices run;
  run.add("c", "amx");  // a checkpoint's, from elsewhere
  run.add("b", "winograd");
  run.add("a", "direct");
  EXPECT_EQ(
      describe_choices(run, measured),
      (std::vector<std::string>{"a: direct (by the rule)", "b: winograd (winograd4 3.5 ms, winograd 3 ms, direct 4 ms)",
                                "c: amx (by the rule)"}));
}

}  // namespace
}  // namespace trainyard::nn::cpu::convolution_choice_test
