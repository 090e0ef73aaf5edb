#include "trainyard/optim/hyperparameters.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::optim::hyperparameters_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Hyperparameters two() {
  Hyperparameters numbers;
  numbers.add("learning_rate", [](int64_t step) { return 1.0 / static_cast<double>(step + 1); }, {0, 10});
  numbers.add("temperature", 3.0);
  return numbers;
}

TEST(Hyperparameters, FollowTheirSchedulesUntilSomebodySetsThem) {
  Hyperparameters numbers = two();
  EXPECT_THAT(numbers.names(), ElementsAre("learning_rate", "temperature"));
  EXPECT_EQ(numbers.get("learning_rate"), 1.0);
  numbers.begin_step(3);
  EXPECT_EQ(numbers.get("learning_rate"), 0.25);
  EXPECT_EQ(numbers.get("temperature"), 3.0);
  numbers.set("learning_rate", 0.125);
  numbers.begin_step(4);
  EXPECT_EQ(numbers.get("learning_rate"), 0.125);
  numbers.release("learning_rate");
  EXPECT_EQ(numbers.get("learning_rate"), 0.2);
  numbers.set("temperature", -7);
  numbers.begin_step(5);
  EXPECT_EQ(numbers.get("temperature"), -7);
  numbers.release("temperature");
  EXPECT_EQ(numbers.get("temperature"), 3.0);
}

TEST(Hyperparameters, KeepWhatWasSetOverACheckpoint) {
  Hyperparameters numbers = two();
  core::MemoryState nothing, something;
  numbers.save(nothing);
  EXPECT_TRUE(nothing.names().empty()) << "schedules are functions of the step";
  numbers.set("temperature", 0.1);
  numbers.save(something);
  EXPECT_THAT(something.names(), ElementsAre("temperature"));

  Hyperparameters resumed = two();
  resumed.set("learning_rate", 9);
  resumed.load(something);
  resumed.begin_step(1);
  EXPECT_EQ(resumed.get("temperature"), 0.1);
  EXPECT_EQ(resumed.get("learning_rate"), 0.5) << "nobody had set it";
  Hyperparameters other;
  testing::internal::CaptureStderr();
  other.load(something);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("'temperature', which this training does not have"));
}

// Three with the same schedule, of which some are set.
TEST(Hyperparameters, ThoseThatAreSetLeaveTheOthersToTheirSchedules) {
  const auto three = [] {
    Hyperparameters numbers;
    for (const char* name : {"a", "b", "c"}) numbers.add(name, [](int64_t step) { return static_cast<double>(step); });
    return numbers;
  };
  const auto values = [](const Hyperparameters& numbers) {
    return std::vector<double>{numbers.get("a"), numbers.get("b"), numbers.get("c")};
  };
  Hyperparameters numbers = three();
  numbers.set("a", 9);
  numbers.begin_step(4);
  EXPECT_THAT(values(numbers), ElementsAre(9, 4, 4));
  numbers.set("b", 7);
  numbers.begin_step(5);
  EXPECT_THAT(values(numbers), ElementsAre(9, 7, 5));
  core::MemoryState saved;
  numbers.save(saved);
  EXPECT_THAT(saved.names(), ElementsAre("a", "b"));

  Hyperparameters resumed = three();
  resumed.set("c", 8);
  resumed.load(saved);
  resumed.begin_step(6);
  EXPECT_THAT(values(resumed), ElementsAre(9, 7, 6));
  resumed.release("a");
  EXPECT_THAT(values(resumed), ElementsAre(6, 7, 6));
  resumed.begin_step(7);
  EXPECT_THAT(values(resumed), ElementsAre(7, 7, 7));
}

TEST(Hyperparameters, RefuseNamesAndValuesThatCannotBe) {
  Hyperparameters numbers = two();
  EXPECT_THAT(core::message_of([&] { numbers.get("learning_rat"); }, core::ErrorCode::kNotFound),
              HasSubstr("learning_rate"));
  EXPECT_THAT(core::message_of([&] { numbers.set("x", 1); }, core::ErrorCode::kNotFound), HasSubstr("hyperparameter"));
  for (const double value : {-0.1, 10.5, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(core::message_of([&] { numbers.set("learning_rate", value); }), HasSubstr("at least 0, at most 10"));
  }
  EXPECT_EQ(core::message_of([&] { numbers.set("temperature", -std::numeric_limits<double>::infinity()); }),
            "the hyperparameter 'temperature' cannot have this value: expected a finite number, got -inf");
  numbers.set("temperature", std::numeric_limits<double>::lowest());
  numbers.set("temperature", 3);
  EXPECT_EQ(numbers.get("learning_rate"), 1.0);
  numbers.set("learning_rate", 0);
  numbers.set("learning_rate", 10);
  numbers.release("learning_rate");
  numbers.begin_step(1);
  EXPECT_EQ(numbers.get("learning_rate"), 0.5) << "it follows its schedule";
  EXPECT_NE(core::message_of([&] { numbers.add("temperature", 1.0); }), "no error");
  EXPECT_NE(core::message_of([&] { numbers.add("a:b", 1.0); }), "no error");
  EXPECT_NE(core::message_of([&] { numbers.add("", 1.0); }), "no error");
  numbers.add("falls", [](int64_t step) { return 1.0 - static_cast<double>(step); }, {0, 1});
  EXPECT_THAT(core::message_of([&] { numbers.begin_step(2); }), HasSubstr("'falls'"));
}

}  // namespace
}  // namespace trainyard::optim::hyperparameters_test
