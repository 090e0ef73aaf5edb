#include "trainyard/nn/execution/kernel_choices.h"

#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"

namespace trainyard::nn::kernel_choices_test {
namespace {

TEST(KernelChoices, TheFirstOneStays) {
  KernelChoices choices;
  EXPECT_FALSE(choices.find("a layer, 3x3"));
  EXPECT_EQ(choices.add("a layer, 3x3", "winograd"), "winograd");
  EXPECT_EQ(choices.add("a layer, 3x3", "direct"), "winograd");
  EXPECT_EQ(choices.find("a layer, 3x3"), "winograd");
}

TEST(KernelChoices, AreReplacedByWhatWasSaved) {
  KernelChoices saved, other;
  saved.add("a layer, 3x3", "winograd");
  saved.add("another", "direct");
  other.add("another", "winograd");
  other.add("a third", "direct");
  core::MemoryState state;
  saved.save(state);
  EXPECT_EQ(other.version(), 0U);
  other.load(state);
  EXPECT_EQ(other.all(), saved.all());
  EXPECT_EQ(other.version(), 1U);
  other.load(state);
  EXPECT_EQ(other.version(), 1U) << "nothing changed";
}

TEST(KernelChoices, AreThoseOfTheFirstProcessEverywhere) {
  KernelChoices choices;
  choices.add("a layer, 3x3", "winograd");
  choices.add("another", "direct");
  int calls = 0;
  choices.agree([&](const std::string& own) {
    ++calls;
    EXPECT_EQ(own, "winograd\ta layer, 3x3\ndirect\tanother\n");
    return std::string("direct\ta layer, 3x3\n");
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(choices.find("a layer, 3x3"), "direct");
  EXPECT_FALSE(choices.find("another"));
  EXPECT_EQ(choices.version(), 1U);
  choices.agree([](const std::string& own) { return own; });
  EXPECT_EQ(choices.version(), 1U) << "the first process has its own";
}

// The state of a checkpoint from before there were choices, or of a run that never had to choose.
TEST(KernelChoices, AStateWithoutAnyLeavesNone) {
  core::MemoryState empty;
  KernelChoices().save(empty);
  EXPECT_TRUE(empty.names().empty());
  KernelChoices choices;
  choices.add("a layer", "direct");
  choices.load(empty);
  EXPECT_TRUE(choices.all().empty());
}

TEST(KernelChoices, WhatIsNoListIsRefused) {
  for (const char* text : {"direct", "\ta layer", "direct\t", "direct\ta layer\nno tab\n"}) {
    core::MemoryState state;
    state.text("choices", text);
    KernelChoices choices;
    choices.add("a layer", "direct");
    try {
      choices.load(state);
      ADD_FAILURE() << text;
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
      EXPECT_EQ(error.detail().problem, "a choice of a kernel cannot be read");
      EXPECT_EQ(error.detail().expected, "kernel, tab, layer");
    }
    EXPECT_EQ(choices.all().size(), 1U) << "as before";
  }
}

}  // namespace
}  // namespace trainyard::nn::kernel_choices_test
