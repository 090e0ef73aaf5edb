#include <numeric>

#include "trainyard/nn/testing/map.h"

namespace trainyard::nn::cpu::permute_channels_test {
namespace {

TRAINYARD_KERNEL_TEST(PermuteChannelsTest);

// Channel c is read from channel (c * step + 3) % channels.
std::vector<int32_t> steps(int64_t channels, int64_t step) {
  std::vector<int32_t> order(static_cast<size_t>(channels));
  for (int64_t c = 0; c < channels; ++c)
    order[static_cast<size_t>(c)] = static_cast<int32_t>((c * step + 3) % channels);
  return order;
}

TYPED_TEST(PermuteChannelsTest, ReadsEachChannelFromItsPlace) {
  for (const DataType dtype : kDataTypes) {
    for (const auto& [channels, step] : {std::pair<int64_t, int64_t>{58, 29}, {19, 7}, {3, 2}, {32, 1}, {116, 45}}) {
      const MapShape shape = TestFixture::shape(2, channels, 5, 23);
      const TestMap input = TestMap::random(shape, dtype, 1), before = TestMap::random(shape, dtype, 2);
      const std::vector<int32_t> order = steps(channels, step);
      for (const bool accumulate : {false, true}) {
        TestMap output = accumulate ? before : TestMap(shape, dtype);
        TypeParam::permute_channels({.shape = shape,
                                     .dtype = dtype,
                                     .channels = order.data(),
                                     .input = input.data(),
                                     .output = output.data(),
                                     .accumulate = accumulate});
        output.expect([&](int64_t n, int64_t c, int64_t y, int64_t x) {
          const double value = input.at(n, order[static_cast<size_t>(c)], y, x);
          return accumulate ? before.at(n, c, y, x) + value : value;
        });
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::permute_channels_test
