#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu::copy_channels_test {
namespace {

TRAINYARD_KERNEL_TEST(CopyChannelsTest);

struct Channels {
  int64_t source, target, from, to, count;
};
// Whole blocks and parts of them, from and to lanes before, at and after a block's edge, single channels.
const Channels kChannels[] = {{16, 16, 0, 0, 16},  {16, 32, 0, 16, 16}, {40, 40, 0, 0, 40}, {3, 40, 0, 17, 3},
                              {17, 40, 0, 23, 17}, {40, 17, 23, 0, 17}, {40, 16, 5, 0, 16}, {1, 3, 0, 2, 1},
                              {40, 40, 33, 1, 5},  {16, 17, 0, 1, 16},  {64, 80, 7, 9, 50}, {3, 1, 1, 0, 1}};

// Returns whether `channel` of the target is copied.
bool copied(const Channels& c, int64_t channel) {
  return channel >= c.to && channel < c.to + c.count;
}

TYPED_TEST(CopyChannelsTest, LeavesOrClearsOtherChannels) {
  for (DataType dtype : kDataTypes) {
    for (const Channels& c : kChannels) {
      for (const int64_t batch : {1, 3}) {
        const TestMap source = TestMap::random(this->shape(batch, c.source, 3, 5), dtype, 1);
        const TestMap before = TestMap::random(this->shape(batch, c.target, 3, 5), dtype, 2);
        for (const bool accumulate : {false, true}) {
          for (const bool clear_rest : {false, true}) {
            TestMap target = before;
            TypeParam::copy_channels({.source_shape = source.shape(),
                                      .target_shape = target.shape(),
                                      .dtype = dtype,
                                      .from = c.from,
                                      .to = c.to,
                                      .count = c.count,
                                      .source = source.data(),
                                      .target = target.data(),
                                      .accumulate = accumulate,
                                      .clear_rest = clear_rest});
            target.expect(
                [&](int64_t n, int64_t channel, int64_t y, int64_t x) {
                  const double old = before.at(n, channel, y, x);
                  if (!copied(c, channel)) return clear_rest ? 0 : old;
                  return source.at(n, channel - c.to + c.from, y, x) + (accumulate ? old : 0);
                },
                accumulate ? 1e-6 : 0);
          }
        }
      }
    }
  }
}

// As concatenation does it: nothing has written the target before, and inputs share blocks.
TYPED_TEST(CopyChannelsTest, FillsUnwrittenMemoryPartByPart) {
  for (DataType dtype : kDataTypes) {
    const std::vector<int64_t> counts = {3, 16, 1, 21, 9};
    TestMap target(this->shape(3, 50, 3, 5), dtype);
    std::vector<TestMap> sources;
    std::vector<std::pair<size_t, int64_t>> origin;  // input and channel of each output channel
    int64_t to = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      sources.push_back(TestMap::random(this->shape(3, counts[i], 3, 5), dtype, i));
      TypeParam::copy_channels({.source_shape = sources[i].shape(),
                                .target_shape = target.shape(),
                                .dtype = dtype,
                                .to = to,
                                .count = counts[i],
                                .source = sources[i].data(),
                                .target = target.data()});
      to += counts[i];
      for (int64_t c = 0; c < counts[i]; ++c) origin.emplace_back(i, c);
    }
    target.expect(
        [&](int64_t n, int64_t c, int64_t y, int64_t x) {
          const auto [input, channel] = origin[static_cast<size_t>(c)];
          return sources[input].at(n, channel, y, x);
        },
        0);
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::copy_channels_test
