#include "trainyard/nn/execution/gradient_sink.h"

#include <utility>
#include <vector>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::nn::gradient_sink_test {
namespace {

class GradientSinkTest : public ::testing::Test {
 protected:
  GradientSinkTest() : sink_(set_) {
    a_ = set_.declare({"a", {2, 2}, {}});
    b_ = set_.declare({"b", {3}, {}});
    set_.allocate();
    set_.gradients().fill_(99);  // of the step before
  }
  at::Tensor filled(ParameterId id, double value) { return at::full(set_.value(id).sizes(), value); }
  double gradient(ParameterId id) { return set_.gradient(id).flatten()[0].item<double>(); }

  ParameterSet set_;
  GradientSink sink_;
  ParameterId a_, b_;
};

TEST_F(GradientSinkTest, OverwritesThenAddsOverMicroSteps) {
  for (int micro_step = 0; micro_step < 3; ++micro_step) {
    sink_.begin(micro_step, 3);
    EXPECT_EQ(sink_.overwrite(a_), micro_step == 0);
    sink_.write(a_, filled(a_, micro_step + 1));
    sink_.finish();
  }
  EXPECT_EQ(gradient(a_), 1 + 2 + 3);
}

TEST_F(GradientSinkTest, AddsUpTheUsesOfAParameter) {
  sink_.set_uses(b_, 2);
  sink_.begin(0, 1);
  sink_.write(b_, filled(b_, 5));
  sink_.write(b_, filled(b_, 6));
  EXPECT_EQ(gradient(b_), 11);
  EXPECT_THROW(sink_.write(b_, filled(b_, 7)), core::Error);
  EXPECT_EQ(gradient(b_), 11) << "untouched";
}

TEST_F(GradientSinkTest, CountsKernelsThatWroteThemselves) {
  sink_.begin(0, 1);
  ASSERT_TRUE(sink_.overwrite(a_));
  set_.gradient(a_).fill_(4);
  sink_.wrote(a_);
  EXPECT_FALSE(sink_.overwrite(a_));
  EXPECT_THROW(sink_.wrote(a_), core::Error);
}

TEST_F(GradientSinkTest, FinishZeroesWhatNobodyWrote) {
  sink_.begin(0, 1);
  sink_.write(a_, filled(a_, 1));
  sink_.finish();
  EXPECT_EQ(gradient(a_), 1);
  EXPECT_EQ(gradient(b_), 0) << "not the 99 of the step before";
  EXPECT_THROW(sink_.write(b_, filled(b_, 1)), core::Error) << "others may read it now";
  EXPECT_EQ(gradient(b_), 0);
}

TEST_F(GradientSinkTest, RefusesAWriteAfterTheLastUse) {
  sink_.begin(0, 1);
  sink_.write(a_, filled(a_, 1));
  try {
    sink_.write(a_, filled(a_, 2));
    FAIL() << "the gradient was complete";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::ErrorCode::kInternal);
  }
  EXPECT_EQ(gradient(a_), 1) << "untouched";
  sink_.begin(0, 1);
  sink_.write(a_, filled(a_, 2));
  EXPECT_EQ(gradient(a_), 2);
}

TEST_F(GradientSinkTest, ConvertsDtypesAndChecksShapes) {
  sink_.begin(0, 1);
  sink_.write(a_, filled(a_, 3).to(at::kBFloat16));
  EXPECT_EQ(gradient(a_), 3);
  EXPECT_THROW(sink_.write(b_, filled(a_, 1)), core::Error);
  EXPECT_THROW(sink_.begin(2, 2), core::Error);
}

TEST_F(GradientSinkTest, SaysWhatItRefuses) {
  const auto message = [](const auto& call, core::ErrorCode code = core::ErrorCode::kInvalidArgument) {
    return core::message_of(call, code);
  };
  EXPECT_EQ(message([&] { sink_.begin(2, 2); }), "no such micro-step: GradientSink::begin: expected 0 to 1, got 2");
  EXPECT_EQ(message([&] { sink_.begin(-1, 3); }), "no such micro-step: GradientSink::begin: expected 0 to 2, got -1");
  EXPECT_EQ(message([&] { sink_.begin(1, 2); }), "no error");
  sink_.begin(0, 1);
  EXPECT_EQ(message([&] { sink_.write(b_, filled(a_, 1)); }),
            "a gradient has another shape than its parameter: b: expected [3], got [2, 2]");
  sink_.write(b_, filled(b_, 1));
  EXPECT_EQ(message([&] { sink_.write(b_, filled(b_, 2)); }, core::ErrorCode::kInternal),
            "a gradient is written after its last use: b; call GradientSink::begin() before the forward of each "
            "micro-step, and set_uses() for a parameter that backward writes more than once");
}

class GradientListenerTest : public GradientSinkTest {
 protected:
  GradientListenerTest() {
    sink_.set_listener([this](ParameterId id) { heard_.emplace_back(id.index, gradient(id)); });
  }
  void expect_heard(const std::vector<std::pair<int, double>>& wanted) {
    EXPECT_EQ(heard_, wanted);
    heard_.clear();
  }

  std::vector<std::pair<int, double>> heard_;  // parameters, with the gradient at that moment
};

TEST_F(GradientListenerTest, HearsAtTheLastUse) {
  sink_.set_uses(b_, 2);
  for (int step = 0; step < 2; ++step) {
    sink_.begin(0, 1);
    sink_.write(b_, filled(b_, 5));
    expect_heard({});
    sink_.write(a_, filled(a_, 1));
    expect_heard({{a_.index, 1}});
    sink_.write(b_, filled(b_, 6));
    expect_heard({{b_.index, 11}});
    sink_.finish();
    expect_heard({});
  }
}

TEST_F(GradientListenerTest, HearsOfKernelsThatWroteThemselves) {
  sink_.begin(0, 1);
  set_.gradient(a_).fill_(4);
  sink_.wrote(a_);
  expect_heard({{a_.index, 4}});
}

TEST_F(GradientListenerTest, HearsInTheLastMicroStepOnly) {
  for (int micro_step = 0; micro_step < 3; ++micro_step) {
    expect_heard({});
    sink_.begin(micro_step, 3);
    sink_.write(a_, filled(a_, micro_step + 1));
    if (micro_step == 2) expect_heard({{a_.index, 6}});
    if (micro_step == 0) sink_.write(b_, filled(b_, 7));
    sink_.finish();
  }
  expect_heard({{b_.index, 7}});  // complete, though the last micro-step did not write it
}

TEST_F(GradientListenerTest, HearsAtTheEndOfWhatNobodyWroteInTheOrderOfSegments) {
  sink_.set_uses(a_, 5);
  sink_.begin(0, 1);
  sink_.write(a_, filled(a_, 2));
  sink_.finish();
  ASSERT_LT(set_.segment(b_).offset, set_.segment(a_).offset);
  expect_heard({{b_.index, 0}, {a_.index, 2}});
  sink_.finish();
  expect_heard({});
}

TEST_F(GradientListenerTest, AFailedWriteIsNotHeard) {
  sink_.begin(0, 1);
  sink_.write(a_, filled(a_, 1));
  expect_heard({{a_.index, 1}});
  EXPECT_THROW(sink_.write(a_, filled(a_, 2)), core::Error);
  EXPECT_THROW(sink_.write(b_, filled(a_, 2)), core::Error);
  expect_heard({});
  sink_.begin(0, 1);  // the step anew
  sink_.write(a_, filled(a_, 3));
  expect_heard({{a_.index, 3}});
}

}  // namespace
}  // namespace trainyard::nn::gradient_sink_test
