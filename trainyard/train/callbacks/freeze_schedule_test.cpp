// Parameters that a FreezeSchedule freezes and thaws at steps.
#include "trainyard/train/callbacks/freeze_schedule.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::freeze_schedule_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The body is frozen in the steps 0 to 2, the head from step 5 on.
std::vector<FreezePeriod> body_then_head() {
  return {{.patterns = {"conv.*", "bn.*"}, .end = 3}, {.patterns = {"fc.*"}, .begin = 5}};
}

// Records after each step which of two tensors have moved.
class Moves : public Callback {
 public:
  std::string name() const override { return "moves"; }
  void before_train(Trainer& trainer) override { note(trainer); }
  void after_step(Trainer& trainer, const StepView&) override {
    const auto before = last_;
    note(trainer);
    std::string moved;
    for (const auto& [name, tensor] : last_) {
      if (!tensor.equal(before.at(name))) moved += (moved.empty() ? "" : " ") + name;
    }
    steps.push_back(moved);
  }
  std::vector<std::string> steps;

 private:
  void note(Trainer& trainer) {
    core::MemoryState state;
    trainer.save(state);
    for (const char* name : {"conv.weight", "fc.weight", "bn.running_mean"}) {
      last_[name] = std::as_const(state).tensor(std::string("model/") + name).clone();
    }
  }
  std::map<std::string, at::Tensor> last_;
};

std::unique_ptr<TowerTrainer> make_trainer(const std::vector<FreezePeriod>& periods) {
  auto trainer = std::make_unique<TowerTrainer>(tiny_options(), tiny_source(240, 8));
  trainer->add(std::make_shared<FreezeSchedule>(periods));
  return trainer;
}

TEST(FreezeSchedule, FreezesInItsStepsAlone) {
  const auto trainer = make_trainer(body_then_head());
  const auto moves = std::make_shared<Moves>();
  trainer->add(moves);
  trainer->train({.steps_per_epoch = 7});
  const std::string body = "bn.running_mean conv.weight", all = body + " fc.weight";
  EXPECT_THAT(moves->steps, ElementsAre("fc.weight", "fc.weight", "fc.weight", all, all, body, body));
}

TEST(FreezeSchedule, ResumesInEachPeriodWithTheSameBits) {
  const auto whole = make_trainer(body_then_head());
  whole->train({.steps_per_epoch = 7});
  for (const int64_t stop : {2, 3, 4, 5, 6}) {
    const auto first = make_trainer(body_then_head());
    first->train({.steps_per_epoch = stop});
    core::MemoryState saved;
    first->save(saved);
    const auto second = make_trainer(body_then_head());
    second->load(saved);
    second->train({.steps_per_epoch = 7, .starting_step = stop});
    EXPECT_TRUE(second->parameters().values().equal(whole->parameters().values())) << stop;
    EXPECT_EQ(second->frozen_parameters(), whole->frozen_parameters()) << stop;
  }
}

// A name that is wrong would otherwise be found out in the middle of a long training.
TEST(FreezeSchedule, LooksForAllNamesAtOnce) {
  const auto trainer = make_trainer({{.patterns = {"cnv.*"}, .begin = 1000}});
  EXPECT_THAT(core::message_of([&] { trainer->train({.steps_per_epoch = 1}); }, core::ErrorCode::kNotFound),
              HasSubstr("no parameter is named as 'cnv.*'"));
}

TEST(FreezeSchedule, TellsHowManyParametersAreFrozenFromAStepOn) {
  const auto trainer = make_trainer(body_then_head());
  testing::internal::CaptureStderr();
  trainer->train({.steps_per_epoch = 7});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("after step 3: 0 parameters are frozen, 3 were"));
  EXPECT_THAT(log, HasSubstr("after step 5: 2 parameters are frozen, 0 were"));
  EXPECT_EQ(log.find("after step 4"), std::string::npos) << log;
}

}  // namespace
}  // namespace trainyard::train::freeze_schedule_test
