#include "trainyard/frontends/model/shared_model.h"

#include <array>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::frontends::shared_model_test {
namespace {

using Group = std::shared_ptr<parallel::ProcessGroup>;

// An open checkpoint of step 7, of images of 4 x 6.
std::shared_ptr<const OpenedModel> open_checkpoint() {
  auto state = std::make_unique<core::MemoryState>();
  state->tensor("model/fc.weight", at::full({5, 3}, 0.25));
  train::save_input({.height = 4, .width = 6, .training = false, .eval_resize_size = 9}, "torchvision", *state);
  train::save_classes({"a", "b"}, 1, *state);
  train::OpenedCheckpoint checkpoint{.info = {.path = "run/model.ckpt-7", .global_step = 7},
                                     .identity = {.model = "mine", .dataset = "imagenet", .num_classes = 5},
                                     .reader = std::move(state)};
  return std::make_shared<OpenedModel>(opened_model(std::move(checkpoint)));
}

TEST(SharedModel, IsTheSameOnAllRanks) {
  std::array<std::shared_ptr<const OpenedModel>, 3> shared;
  std::array<int, 3> opened{};
  std::shared_ptr<const OpenedModel> of_first;
  parallel::on_ranks(3, [&](const Group& group) {
    const auto rank = static_cast<size_t>(group->rank());
    shared.at(rank) = share_opened_model(*group, [&] {
      ++opened.at(rank);
      of_first = open_checkpoint();
      return of_first;
    });
  });
  EXPECT_EQ(opened, (std::array<int, 3>{1, 0, 0})) << "the first rank alone reads it";
  EXPECT_EQ(shared[0], of_first);
  for (const auto& each : shared) {
    ASSERT_NE(each, nullptr);
    EXPECT_EQ(each->checkpoint.path, "run/model.ckpt-7");
    EXPECT_EQ(each->checkpoint.global_step, 7);
    EXPECT_EQ(each->identity.model, "mine");
    EXPECT_EQ(each->identity.dataset, "imagenet");
    EXPECT_EQ(each->identity.num_classes, 5);
    EXPECT_EQ(each->classes, (ClassNames{.names = {"a", "b"}, .first_output = 1}));
    EXPECT_EQ(each->image_size, nn::Size2d(4, 6));
    ASSERT_TRUE(each->input);
    EXPECT_EQ(each->input->input.eval_resize_size, 9);
    EXPECT_EQ(each->input->preprocessor, "torchvision");
    EXPECT_EQ(each->input->origin, "run/model.ckpt-7");
    ASSERT_NE(each->reader, nullptr);
    EXPECT_EQ(each->reader->names(), of_first->reader->names());
    EXPECT_TRUE(each->reader->tensor("model/fc.weight").equal(at::full({5, 3}, 0.25)));
  }
}

TEST(SharedModel, IsNoneOnAllRanksWhereThereIsNone) {
  parallel::on_ranks(2, [](const Group& group) {
    EXPECT_EQ(share_opened_model(*group, [] { return std::shared_ptr<const OpenedModel>(); }), nullptr)
        << group->rank();
  });
}

TEST(SharedModel, ThrowsOnAllRanksWhatOpeningThrows) {
  parallel::on_ranks(2, [](const Group& group) {
    const core::Error error = core::thrown_by([&] {
      static_cast<void>(share_opened_model(*group, []() -> std::shared_ptr<const OpenedModel> {
        throw core::Error(core::ErrorCode::kNotFound, "no such checkpoint in this test");
      }));
    });
    EXPECT_EQ(error.code(), core::ErrorCode::kNotFound) << group->rank();
    EXPECT_TRUE(core::says(error, "no such checkpoint in this test")) << group->rank() << ": " << error.what();
  });
}

}  // namespace
}  // namespace trainyard::frontends::shared_model_test
