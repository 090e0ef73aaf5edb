#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/tensors.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::core::named_tensors_test {
namespace {

TEST(NamedTensors, KeepsTheOrderOfAdding) {
  NamedTensors tensors({{"images", at::zeros({2, 3})}, {"labels", at::arange(2)}});
  tensors.set("weights", at::zeros({2}));
  tensors.set("images", at::zeros({4, 3}));
  EXPECT_EQ(tensors.names(), (std::vector<std::string>{"images", "labels", "weights"}));
  EXPECT_EQ(tensors["images"].size(0), 4);
  EXPECT_EQ(tensors.begin()->name, "images");
  EXPECT_EQ(tensors.find("masks"), nullptr);
  EXPECT_FALSE(tensors.has("masks"));
}

TEST(NamedTensors, SaysWhichNamesThereAre) {
  const NamedTensors tensors({{"images", at::zeros({1})}, {"labels", at::zeros({1})}});
  EXPECT_EQ(message_of([&] { tensors["image"]; }, ErrorCode::kNotFound),
            "unknown tensor 'image'; did you mean 'images'? known: images, labels");
}

TEST(NamedTensors, RefusesTwoOfOneNameAndNoName) {
  EXPECT_EQ(message_of([] {
              NamedTensors({{"a", at::zeros({1})}, {"a", at::zeros({1})}});
            }),
            "two tensors are named 'a'");
  EXPECT_EQ(message_of([] { NamedTensors().set("", at::zeros({1})); }), "a tensor without a name cannot be kept");
}

}  // namespace
}  // namespace trainyard::core::named_tensors_test
