#include "trainyard/optim/step/segment_parts.h"

#include <gtest/gtest.h>

namespace trainyard::optim::segment_parts_test {
namespace {

nn::Segment segment(int64_t offset, int64_t count, bool decay) {
  return {.spec = {.name = "w", .shape = {count}, .decay = decay}, .offset = offset, .count = count};
}

TEST(SegmentParts, CoverEachElementOnceAndNoGap) {
  const std::vector<nn::Segment> segments = {segment(0, 7, true), segment(16, 64, false), segment(80, 129, true)};
  const std::vector<SegmentPart> parts = cut_segments(segments, 32);
  std::vector<int> covered(224), decays(224), places(224);
  for (const SegmentPart& part : parts) {
    EXPECT_EQ(part.begin % 16, 0);
    EXPECT_LE(part.count, 32);
    EXPECT_GT(part.count, 0);
    for (int64_t i = part.begin; i < part.begin + part.count; ++i) {
      ++covered[static_cast<size_t>(i)];
      decays[static_cast<size_t>(i)] = part.decays;
      places[static_cast<size_t>(i)] = part.segment;
    }
  }
  for (const nn::Segment& s : segments) {
    for (int64_t i = s.offset; i < s.offset + s.count; ++i) {
      EXPECT_EQ(covered[static_cast<size_t>(i)], 1) << i;
      EXPECT_EQ(decays[static_cast<size_t>(i)], s.spec.decay ? 1 : 0) << i;
      EXPECT_EQ(places[static_cast<size_t>(i)], &s - segments.data()) << i;
      covered[static_cast<size_t>(i)] = 0;
    }
  }
  EXPECT_EQ(covered, std::vector<int>(224));
}

TEST(SegmentParts, TableHoldsWhatWasCut) {
  nn::ParameterSet set;
  set.declare({.name = "a", .shape = {kPartElements + 5}});
  set.declare({.name = "b", .shape = {3}, .decay = false});
  set.allocate();
  const SegmentPartTable table = segment_part_table(set.segments(), at::kCPU);
  ASSERT_EQ(table.count, 3);
  EXPECT_EQ(table.data()[0].count, 3);  // the last declared comes first
  EXPECT_EQ(table.data()[0].decays, 0);
  EXPECT_EQ(table.data()[1].begin, 16);
  EXPECT_EQ(table.data()[1].count, kPartElements);
  EXPECT_EQ(table.data()[2].count, 5);
}

}  // namespace
}  // namespace trainyard::optim::segment_parts_test
