#include "trainyard/optim/step/step_state.h"

#include <gtest/gtest.h>

namespace trainyard::optim::step_state_test {
namespace {

TEST(StepState, ReadsWhatWasWritten) {
  StepState state;
  EXPECT_EQ(state.read().learning_rate, 0.0);
  state.write({.learning_rate = 0.1, .inverse_loss_scale = 0.25, .step = (int64_t{1} << 40) + 1, .found_inf = true});
  const StepValues values = state.read();
  EXPECT_EQ(values.learning_rate, 0.1);
  EXPECT_EQ(values.inverse_loss_scale, 0.25);
  EXPECT_EQ(values.step, (int64_t{1} << 40) + 1);
  EXPECT_TRUE(values.found_inf);
}

TEST(StepState, WritingKeepsTheTensor) {
  // A captured step reads the same memory at every replay.
  StepState state;
  const void* memory = state.tensor().const_data_ptr();
  state.write({.learning_rate = 0.5});
  EXPECT_EQ(state.tensor().const_data_ptr(), memory);
  state.tensor()[StepState::kFoundInf] = 1.0;
  EXPECT_TRUE(state.read().found_inf);
}

}  // namespace
}  // namespace trainyard::optim::step_state_test
