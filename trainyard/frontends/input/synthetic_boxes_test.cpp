#include "trainyard/frontends/input/synthetic_boxes.h"

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace trainyard::frontends::synthetic_boxes_test {
namespace {

SyntheticBoxesOptions options(uint64_t seed = 3) {
  return {.height = 6, .width = 10, .default_boxes = 7, .seed = seed};
}

TEST(SyntheticBoxes, HaveTheSizesThatAreAskedFor) {
  const std::shared_ptr<data::BatchSource> source = make_synthetic_boxes(options(), {.batch_size = 3, .replicas = 2});
  const std::vector<data::Batch> batches = source->next();
  ASSERT_EQ(batches.size(), 2U);
  for (const data::Batch& batch : batches) {
    EXPECT_EQ(batch.images().sizes().vec(), (std::vector<int64_t>{3, 3, 6, 10}));
    EXPECT_EQ(batch.tensors["boxes"].sizes().vec(), (std::vector<int64_t>{3, 7, 4}));
    EXPECT_EQ(batch.tensors["classes"].sizes().vec(), (std::vector<int64_t>{3, 7}));
    EXPECT_EQ(batch.tensors["num_matched"].sizes().vec(), std::vector<int64_t>{3});
    for (const char* name : {"images", "boxes"}) {
      EXPECT_GE(batch.tensors[name].min().item<float>(), 0) << name;
      EXPECT_LT(batch.tensors[name].max().item<float>(), 1) << name;
      EXPECT_GT(batch.tensors[name].max().item<float>(), 0.5) << name;
    }
    EXPECT_EQ(batch.tensors["classes"].sum().item<int64_t>(), 0) << "the background";
  }
}

TEST(SyntheticBoxes, MatchOneToNineBoxesOfAnImage) {
  const std::shared_ptr<data::BatchSource> source = make_synthetic_boxes(options(), {.batch_size = 3, .replicas = 2});
  std::set<int64_t> seen;
  for (int step = 0; step < 100; ++step) {
    for (const data::Batch& batch : source->next()) {
      const at::Tensor& matched = batch.tensors["num_matched"];
      for (int64_t i = 0; i < 3; ++i) seen.insert(matched[i].item<int64_t>());
    }
  }
  EXPECT_EQ(seen, (std::set<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

// Each image and its boxes follow from their place in the global batch, whatever replica or process has them.
TEST(SyntheticBoxes, AreThoseOfTheirPlaceInTheGlobalBatch) {
  const std::vector<data::Batch> whole = make_synthetic_boxes(options(), {.batch_size = 6})->next();
  const std::vector<data::Batch> halves = make_synthetic_boxes(options(), {.batch_size = 3, .replicas = 2})->next();
  const std::shared_ptr<data::BatchSource> process =
      make_synthetic_boxes(options(), {.batch_size = 3, .first_replica = 1, .total_replicas = 2});
  const std::vector<data::Batch> second = process->next();
  const std::vector<data::Batch> other = make_synthetic_boxes(options(4), {.batch_size = 6})->next();
  for (const char* name : {"images", "boxes"}) {
    const at::Tensor& all = whole[0].tensors[name];
    EXPECT_TRUE(halves[0].tensors[name].equal(all.slice(0, 0, 3))) << name;
    EXPECT_TRUE(halves[1].tensors[name].equal(all.slice(0, 3, 6))) << name;
    EXPECT_TRUE(second[0].tensors[name].equal(halves[1].tensors[name])) << name;
    EXPECT_FALSE(halves[0].tensors[name].equal(halves[1].tensors[name])) << name;
    EXPECT_FALSE(other[0].tensors[name].equal(all)) << name << " of another seed";
  }
  EXPECT_TRUE(second[0].tensors["num_matched"].equal(halves[1].tensors["num_matched"]));
  EXPECT_EQ(process->position().offset, 6) << "the samples of both processes count";
}

}  // namespace
}  // namespace trainyard::frontends::synthetic_boxes_test
