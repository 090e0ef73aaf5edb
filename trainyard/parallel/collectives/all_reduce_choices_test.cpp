#include "trainyard/parallel/collectives/all_reduce_choices.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::parallel::all_reduce_choices_test {
namespace {

const AllReduceChoice kChoice = {
    "chain:16K:shuffle#2",
    {{4096, "chain", 2.25e-6}, {4096, "shuffle#2", 3e-6}, {65536, "chain", 0.5}, {65536, "shuffle#2", 0.25}}};

void expect_equal(const std::optional<AllReduceChoice>& found, const AllReduceChoice& expected) {
  ASSERT_TRUE(found);
  EXPECT_EQ(found->spec, expected.spec);
  ASSERT_EQ(found->times.size(), expected.times.size());
  for (size_t i = 0; i < expected.times.size(); ++i) {
    EXPECT_EQ(found->times[i].bytes, expected.times[i].bytes);
    EXPECT_EQ(found->times[i].algorithm, expected.times[i].algorithm);
    EXPECT_NEAR(found->times[i].seconds, expected.times[i].seconds, 1e-9);
  }
}

TEST(AllReduceChoices, AreReadFromTheirFile) {
  const core::TempDir folder;
  const std::string file = folder.file("new/all_reduces.txt");
  AllReduceChoices first(file);
  EXPECT_TRUE(first.all().empty());
  first.keep("two ranks", kChoice);
  expect_equal(first.find("two ranks"), kChoice);
  const AllReduceChoices second(file);
  expect_equal(second.find("two ranks"), kChoice);
  EXPECT_FALSE(second.find("three ranks"));
}

TEST(AllReduceChoices, TheNewestIsKeptNextToThoseOfOtherProcesses) {
  const core::TempDir folder;
  const std::string file = folder.file("all_reduces.txt");
  AllReduceChoices first(file), second(file);
  first.keep("two ranks", kChoice);
  second.keep("three ranks", {"chain", {}});
  first.keep("two ranks", {"shared_memory", {}});
  const AllReduceChoices third(file);
  expect_equal(third.find("two ranks"), {"shared_memory", {}});
  expect_equal(third.find("three ranks"), {"chain", {}});
  EXPECT_EQ(third.all().size(), 2U);
}

TEST(AllReduceChoices, WhatIsNotWholeInTheFileIsPassedOver) {
  const core::TempDir folder;
  const std::string file = folder.file("all_reduces.txt"), head = "trainyard all-reduces 1\n";
  const auto read = [&](const std::string& text) {
    core::local_file_system().write_file_atomically(file, text);
    return AllReduceChoices(file).all().size();
  };
  EXPECT_EQ(read(head + "chain\ttwo ranks\t4096 chain=0.5\n"), 1U);
  EXPECT_EQ(read("trainyard all-reduces 0\nchain\ttwo ranks\n"), 0U) << "another version";
  EXPECT_EQ(read(""), 0U);
  for (const char* line :
       {"chain", "chain\t", "\ttwo ranks", "chain\ttwo ranks\t4096", "chain\ttwo ranks\t4096 chain",
        "chain\ttwo ranks\tchain=0.5", "chain\ttwo ranks\tmany chain=0.5", "chain\ttwo ranks\t4096 chain=soon",
        "chain\ttwo ranks\t4096 chain=-1", "chain\ttwo ranks\t4096 chain=inf", "chain\ttwo ranks\t4096 =0.5",
        "chain\ttwo ranks\t4096 chain=0", "chain\ttwo ranks\t0 chain=0.5", "chain\ttwo ranks\t-4 chain=0.5",
        "chain\ttwo ranks\t99999999999999999999 chain=0.5"}) {
    EXPECT_EQ(read(head + line + "\n" + "chain\tthree ranks\n"), 1U) << line;
  }
  EXPECT_EQ(read(head + std::string(1000, '\t') + "\n" + std::string("chain\t\0two\n", 11)), 1U);
}

TEST(AllReduceChoices, AFileOfMoreThanFourMebibytesIsNotRead) {
  const core::TempDir folder;
  const std::string file = folder.file("all_reduces.txt"), head = "trainyard all-reduces 1\nchain\ttwo ranks\n";
  constexpr size_t kMost = size_t{4} << 20;
  for (const size_t size : {kMost, kMost + 1}) {
    core::local_file_system().write_file_atomically(file, head + std::string(size - head.size(), 'x'));
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(AllReduceChoices(file).all().size(), size == kMost ? 1U : 0U) << size;
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("measured all-reduces are not used: ") != std::string::npos, size > kMost) << said;
  }
}

TEST(AllReduceChoices, AFolderThatCannotBeWrittenToKeepsThemInMemory) {
  const core::TempDir folder;
  core::local_file_system().write_file_atomically(folder.file("file"), "a file where a folder is wanted");
  AllReduceChoices choices(folder.file("file/all_reduces.txt"));
  ::testing::internal::CaptureStderr();
  choices.keep("two ranks", kChoice);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("measured all-reduces are not kept: "));
  expect_equal(choices.find("two ranks"), kChoice);
}

}  // namespace
}  // namespace trainyard::parallel::all_reduce_choices_test
