#include "trainyard/nn/execution/device_trace.h"

#include <gtest/gtest.h>

namespace trainyard::nn::device_trace_test {
namespace {

TraceClock::time_point at_us(int64_t microseconds) {
  return TraceClock::time_point(std::chrono::microseconds(microseconds));
}

DeviceActivity activity(const std::string& name, int64_t begin_us, int64_t end_us) {
  return {.name = name, .begin = at_us(begin_us), .end = at_us(end_us)};
}

TEST(ActivityJoin, PutsTogetherWhatComesInAnyOrder) {
  ActivityJoin join(100);
  join.add(activity("late", 40, 50), 7);
  join.add_span(8, 3);
  join.add_call(7, at_us(12));
  join.add(activity("early", 20, 60), 8);
  join.add_call(9, at_us(1));  // a call that ran nothing
  join.add_span(7, 2);
  join.add(activity("alone", 30, 30), 10);
  const DeviceRecords records = join.take();
  ASSERT_EQ(records.activities.size(), 3u);
  EXPECT_EQ(records.activities[0].name, "early") << "overlaps the others on the device, and begins first";
  EXPECT_EQ(records.activities[0].span, 3u);
  EXPECT_FALSE(records.activities[0].handed_over);
  EXPECT_EQ(records.activities[1].name, "alone");
  EXPECT_EQ(records.activities[1].span, 0u);
  EXPECT_EQ(records.activities[2].span, 2u);
  EXPECT_EQ(records.activities[2].handed_over, at_us(12));
  EXPECT_EQ(records.lost, 0);
}

TEST(ActivityJoin, ForgetsWhatItHasHandedOn) {
  ActivityJoin join(100);
  join.add_span(1, 5);
  join.lose(2);
  EXPECT_EQ(join.take().lost, 2);
  join.add(activity("kernel", 1, 2), 1);
  const DeviceRecords records = join.take();
  EXPECT_EQ(records.lost, 0);
  EXPECT_EQ(records.activities.front().span, 0u) << "drivers count calls anew";
}

TEST(ActivityJoin, CountsWhatItHasNoRoomFor) {
  ActivityJoin join(3);
  join.add_call(1, at_us(1));
  join.add(activity("a", 1, 2), 1);
  join.add(activity("backwards", 9, 2), 1);
  join.add(activity("b", 2, 3), 1);
  join.add(activity("c", 3, 4), 1);
  join.add_span(1, 1);
  join.add_call(2, at_us(1));
  const DeviceRecords records = join.take();
  EXPECT_EQ(records.activities.size(), 2u);
  EXPECT_EQ(records.lost, 2) << "one that ends before it begins, and one too many";
}

TEST(SpanMarks, TimesBelongToTheInnermostSpanOfTheThread) {
  SpanMarks marks(100);
  const uint64_t outer = marks.begin();
  const uint64_t inner = marks.begin();
  marks.end();
  uint64_t other = 0;
  std::thread([&] {  // which knows nothing of the first one's
    other = marks.begin();
    marks.end();
  })
      .join();
  marks.end();
  ASSERT_EQ(marks.size(), 6u);
  const std::vector<DeviceActivity> ran =
      marks.take({at_us(0), at_us(10), at_us(30), at_us(60), at_us(100), at_us(150), at_us(210)}, 1, 7).activities;
  ASSERT_EQ(ran.size(), 4u) << "behind the other thread's and the outer span nobody is";
  const auto is = [](const DeviceActivity& activity, uint64_t span, int64_t begin, int64_t end) {
    EXPECT_EQ(activity.span, span);
    EXPECT_EQ(activity.begin, at_us(begin));
    EXPECT_EQ(activity.end, at_us(end));
    EXPECT_EQ(activity.kind, DeviceActivity::Kind::kSpan);
    EXPECT_TRUE(activity.handed_over);
    EXPECT_EQ(activity.device, 1);
    EXPECT_EQ(activity.stream, 7);
  };
  is(ran[0], outer, 0, 10);
  is(ran[1], inner, 10, 30);
  is(ran[2], outer, 30, 60);
  is(ran[3], other, 60, 100);
}

TEST(SpanMarks, SpansStayOpenOverATake) {
  SpanMarks marks(100);
  const uint64_t outer = marks.begin();
  EXPECT_EQ(marks.take({at_us(0), at_us(1)}, 0, 0).activities.size(), 1u);
  EXPECT_EQ(marks.size(), 0u);
  marks.begin();
  marks.end();
  const auto ran = marks.take({at_us(2), at_us(3), at_us(4)}, 0, 0).activities;
  ASSERT_EQ(ran.size(), 2u);
  EXPECT_EQ(ran[1].span, outer);
  marks.end();
  marks.end();  // one too many, as where an error ended a step
  EXPECT_TRUE(marks.take({at_us(5)}, 0, 0).activities.empty()) << "a time is missing";
}

TEST(SpanMarks, TheLastOneThatHasRoomEndsAllSpans) {
  SpanMarks marks(3);
  const uint64_t outer = marks.begin();
  const uint64_t inner = marks.begin();
  marks.end();
  marks.begin();
  ASSERT_EQ(marks.size(), 3u);
  const DeviceRecords ran = marks.take({at_us(0), at_us(1), at_us(2), at_us(9)}, 0, 0);
  ASSERT_EQ(ran.activities.size(), 2u) << "nobody is told to have run up to the end";
  EXPECT_EQ(ran.activities[0].span, outer);
  EXPECT_EQ(ran.activities[1].span, inner);
  EXPECT_EQ(ran.lost, 2);
  EXPECT_EQ(marks.take({}, 0, 0).lost, 0) << "they are told once";
}

TEST(SpanMarks, ATimeThatGoesBackGivesASpanWithoutLength) {
  SpanMarks marks(100);
  const uint64_t outer = marks.begin();
  marks.begin();
  marks.end();
  const auto ran = marks.take({at_us(10), at_us(4), at_us(20), at_us(30)}, 0, 0).activities;
  ASSERT_EQ(ran.size(), 3u);
  EXPECT_EQ(ran[0].begin, at_us(10));
  EXPECT_EQ(ran[0].end, at_us(10));
  EXPECT_EQ(ran[1].begin, at_us(4));
  EXPECT_EQ(ran[1].end, at_us(20));
  EXPECT_EQ(ran[2].span, outer);
}

TEST(DeviceTrace, SpansHaveNumbersOfTheirOwn) {
  const uint64_t first = next_span();
  EXPECT_GT(first, 0u);
  EXPECT_NE(next_span(), first);
}

// The symbols are nvcc's; their long forms c++filt's.
TEST(KernelName, LeavesOutWhatPeopleDoNotRead) {
  // void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<__half>, std2::array<char*, 3ul>
  // >(int, at::native::CUDAFunctor_add<__half>, std2::array<char*, 3ul>)
  EXPECT_EQ(kernel_name("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addI6__halfEEN4std25arrayI"
                        "PcLm3EEEEEviT0_T1_"),
            "vectorized_elementwise_kernel<4, CUDAFunctor_add<__half>, array<char*, 3ul> >");
  // trainyard::nn::cuda::(anonymous namespace)::plain(void (*)(int))
  EXPECT_EQ(kernel_name("_ZN9trainyard2nn4cuda40_GLOBAL__N__4f35c86c_8_names_cu_ee2c7b405plainEPFviE"), "plain");
  // void trainyard::nn::cuda::(anonymous namespace)::norm_forward_kernel<float, true>(float const*, int)
  EXPECT_EQ(kernel_name("_ZN9trainyard2nn4cuda40_GLOBAL__N__4f35c86c_8_names_cu_ee2c7b40L19norm_forward_kernelIfLb1EEE"
                        "vPKT_i"),
            "norm_forward_kernel<float, true>");
}

TEST(KernelName, KeepsNamesThatAreNone) {
  EXPECT_EQ(kernel_name("sm90_xmma_fprop_implicit_gemm_f16f16_nhwc_tn_v1"),
            "sm90_xmma_fprop_implicit_gemm_f16f16_nhwc_tn_v1");
  EXPECT_EQ(kernel_name(""), "");
  EXPECT_EQ(kernel_name("_Z"), "_Z");
  EXPECT_EQ(kernel_name("_ZN2at6nativ"), "_ZN2at6nativ");
}

TEST(KernelName, CutsLongOnes) {
  const std::string cut = kernel_name(std::string(500, 'k'));
  std::string expected(93, 'k');
  EXPECT_EQ(cut, expected.append("..."));
  EXPECT_EQ(kernel_name(std::string(97, 'k')), expected);
  EXPECT_EQ(kernel_name(std::string(96, 'k')), std::string(96, 'k')) << "the longest that is kept";
}

}  // namespace
}  // namespace trainyard::nn::device_trace_test
