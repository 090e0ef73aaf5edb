#include "trainyard/nn/execution/device_memory.h"

#include <gtest/gtest.h>

namespace trainyard::nn::device_memory_test {
namespace {

// input 3x8x8, conv 16x8x8, norm + relu 16x8x8, max pool 16x4x4, mean 16, linear 10
Graph small_graph() {
  GraphBuilder b({.image = {3, 8, 8}, .name = "small"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 16, .kernel = 3, .padding = Padding::all(1)});
  x = b.activation("relu", b.batch_norm("norm", x));
  x = b.max_pool("pool", x, {.kernel = 2, .stride = 2});
  x = b.linear("fc", b.global_average_pool("mean", x), {.out_features = 10});
  return b.build(x);
}

TEST(DeviceMemory, CountsWhatTheBackwardNeeds) {
  const int64_t map = 16 * 64, kept = 3 * 64 + 2 * map + 16 * 16 + 16 + 10;
  EXPECT_EQ(activation_bytes_per_image(small_graph(), 2, true), 2 * kept + 16 * 16 + 2 * 2 * map);
  EXPECT_EQ(activation_bytes_per_image(small_graph(), 4, true), 4 * kept + 16 * 16 + 4 * 2 * map);
  EXPECT_EQ(activation_bytes_per_image(small_graph(), 2, false), 2 * (2 * map + 16 * 16));
}

// input 2x4x6, average pool 2x2x3, mean 2, linear 3: no pool that keeps the place of its maximum.
TEST(DeviceMemory, AnAveragePoolKeepsNoPlaces) {
  GraphBuilder b({.image = {2, 4, 6}, .name = "mean"});
  const auto x = b.average_pool("pool", b.input(), {.kernel = 2, .stride = 2});
  const Graph graph = b.build(b.linear("fc", b.global_average_pool("mean", x), {.out_features = 3}));
  EXPECT_EQ(activation_bytes_per_image(graph, 4, true), 4 * (48 + 12 + 2 + 3) + 4 * (48 + 12));
  EXPECT_EQ(activation_bytes_per_image(graph, 4, false), 4 * (48 + 12 + 3));
}

// Fewer values than the three that are alive at a time, and a second input.
TEST(DeviceMemory, CountsNetworksOfFewLayersAndSeveralInputs) {
  GraphBuilder b({.image = {5}, .name = "tiny"});
  const Graph tiny = b.build(b.linear("fc", b.input(), {.out_features = 2}));
  EXPECT_EQ(activation_bytes_per_image(tiny, 2, true), 2 * (5 + 2) + 2 * (5 + 2));
  EXPECT_EQ(activation_bytes_per_image(tiny, 2, false), 2 * (5 + 2));
  GraphBuilder c({.image = {5}, .name = "two"});
  const Graph two = c.build(c.linear("fc", c.concat("both", {c.input(), c.input("more", {4})}), {.out_features = 2}));
  EXPECT_EQ(activation_bytes_per_image(two, 1, true), (5 + 4 + 9 + 2) + (9 + 5));
  EXPECT_EQ(activation_bytes_per_image(two, 1, false), 9 + 5 + 4);
}

TEST(DeviceMemory, LargestBatchIsWhatIsLeft) {
  EXPECT_EQ(largest_batch(1000, 100, 90), 10);
  EXPECT_EQ(largest_batch(1000, 100, 91), 9);
  for (const int64_t fixed : {950, 2000}) EXPECT_EQ(largest_batch(1000, fixed, 90), 0) << fixed;
  EXPECT_EQ(largest_batch(1000, 100, 1), 900);
  EXPECT_EQ(largest_batch(1000, 100, 0), 0);
}

TEST(DeviceMemory, TheErrorSaysWhatWasAskedHeldAndFreeAndWhatFits) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  const DeviceMemory memory{
      .total = 140 * kGiB, .limit = 140 * kGiB, .free = kGiB / 2, .held = 130 * kGiB, .used = 129 * kGiB};
  const core::Error error = out_of_device_memory("replica 0", 3 * kGiB / 2, memory, 256, 192);
  EXPECT_EQ(error.code(), core::ErrorCode::kNoSpace);
  EXPECT_STREQ(error.what(),
               "out of GPU memory with a batch of 256: replica 0: expected room for 1.50 GiB more, got 130.00 GiB held "
               "by this process (129.00 GiB in tensors), 0.50 GiB free of 140.00 GiB; a batch of about 192 fits: pass "
               "--batch_size=192, with --micro_steps for the rest of it");
  // An estimate that is too large must not send the user back to where he comes from.
  EXPECT_NE(std::string(out_of_device_memory("", 1, memory, 256, 300).what()).find("about 255 fits"),
            std::string::npos);
  EXPECT_NE(std::string(out_of_device_memory("", 1, memory, 0, 0).what()).find("out of GPU memory: "),
            std::string::npos);
  EXPECT_NE(std::string(out_of_device_memory("", 1, memory, 1, 1).what()).find("not even one image fits"),
            std::string::npos);
  DeviceMemory limited = memory;
  limited.limit = 70 * kGiB;
  EXPECT_STREQ(out_of_device_memory("replica 1", kGiB, limited, 8, 4).what(),
               "out of GPU memory with a batch of 8: replica 1: expected room for 1.00 GiB more, got 130.00 GiB held "
               "by this process (129.00 GiB in tensors), 0.50 GiB free of 140.00 GiB, of which this process may take "
               "70.00 GiB; a batch of about 4 fits: pass --batch_size=4, with --micro_steps for the rest of it");
  EXPECT_NE(std::string(out_of_device_memory("", 1, memory, 2, 9).what()).find("a batch of about 1 fits"),
            std::string::npos);
}

}  // namespace
}  // namespace trainyard::nn::device_memory_test
