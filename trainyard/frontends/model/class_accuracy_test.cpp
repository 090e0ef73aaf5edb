#include "trainyard/frontends/model/class_accuracy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace trainyard::frontends::class_accuracy_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ClassAccuracy, FewClassesAreAllShown) {
  EXPECT_EQ(class_accuracy_table({{0, 0}, {1, 4}, {3, 3}, {0, 2}}, {"", "caf\xc3\xa9", "bumblebee"}),
            "Accuracy by class:\n"
            "  caf\xc3\xa9       0.2500  1 of 4\n"
            "  bumblebee  1.0000  3 of 3\n"
            "  3          0.0000  0 of 2\n");
  EXPECT_EQ(class_accuracy_table({{0, 0}, {0, 0}}, {}), "");
}

TEST(ClassAccuracy, OfManyTheWorstAndTheBest) {
  std::vector<train::ClassCount> classes;
  for (int64_t i = 0; i < 21; ++i) classes.push_back({i * 37 % 21, 20});
  const std::string table = class_accuracy_table(classes, {});
  EXPECT_EQ(table,
            "Accuracy by class, the worst of 21:\n"
            "  0   0.0000  0 of 20\n"
            "  4   0.0500  1 of 20\n"
            "  8   0.1000  2 of 20\n"
            "  12  0.1500  3 of 20\n"
            "  16  0.2000  4 of 20\n"
            "and the best:\n"
            "  1   0.8000  16 of 20\n"
            "  5   0.8500  17 of 20\n"
            "  9   0.9000  18 of 20\n"
            "  13  0.9500  19 of 20\n"
            "  17  1.0000  20 of 20\n");
  classes.pop_back();
  EXPECT_THAT(class_accuracy_table(classes, {}), Not(HasSubstr("worst")));
}

TEST(ClassAccuracy, TheFileHoldsAllClasses) {
  train::Evaluation evaluation{.top_1 = 0.5, .samples = 4};
  evaluation.classes = {{0, 0}, {2, 4}, {0, 0}};
  const auto json = nlohmann::json::parse(
      class_accuracy_json(evaluation, {"", "cat", "dog\n"}, {.path = "out/model.ckpt-7", .global_step = 7}));
  EXPECT_EQ(json["checkpoint"], "out/model.ckpt-7");
  EXPECT_EQ(json["global_step"], 7);
  EXPECT_EQ(json["top_1_accuracy"], 0.5);
  EXPECT_EQ(json["examples"], 4);
  EXPECT_EQ(json["classes"].size(), 2u) << "not the background, which no sample has";
  EXPECT_EQ(json["classes"][0], (nlohmann::json{{"output", 1}, {"name", "cat"}, {"right", 2}, {"total", 4}}));
  EXPECT_EQ(json["classes"][1], (nlohmann::json{{"output", 2}, {"name", "dog\n"}, {"right", 0}, {"total", 0}}));
}

}  // namespace
}  // namespace trainyard::frontends::class_accuracy_test
