#include "trainyard/frontends/model/other_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::frontends::other_sizes_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A network whose last layer has weights for each pixel where it does not pool them.
nn::Graph network(nn::Size2d size, bool pools) {
  nn::GraphBuilder b({.image = {3, size.height, size.width}, .name = "small"});
  return b.build(b.linear("fc", pools ? b.global_average_pool("pool", b.input()) : b.flatten("flat", b.input()),
                          {.out_features = 2}));
}

TEST(OtherSizes, EachHasANetworkOfItsHeightAndWidth) {
  std::vector<nn::Shape> shapes;
  for (const nn::Graph& graph :
       graphs_of_other_sizes(network(nn::Size2d(8, 6), true), data::parse_epoch_sizes("0:4x6,1:6x4,2:8x6,3:4x6,4:6x8"),
                             [](nn::Size2d size) { return network(size, true); })) {
    shapes.push_back(graph.input_shape());
  }
  EXPECT_THAT(shapes, ElementsAre(nn::Shape{3, 4, 6}, nn::Shape{3, 6, 4}, nn::Shape{3, 6, 8}))
      << "that of the network itself has one, and each other size one";
}

TEST(OtherSizes, WeightsThatDependOnTheSizeAreRefused) {
  const auto build = [](nn::Size2d size) { return network(size, false); };
  EXPECT_THAT(
      core::message_of([&] { graphs_of_other_sizes(build(nn::Size2d(4)), data::parse_epoch_sizes("0:4,1:6"), build); }),
      HasSubstr("--progressive_sizes cannot be used: a network has other weights for images of another size"));
}

}  // namespace
}  // namespace trainyard::frontends::other_sizes_test
