#include "trainyard/cli/trained_model_flags.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::cli::trained_model_flags_test {
namespace {

frontends::TrainedModelOptions read(const std::vector<std::string>& arguments, const std::string& path = "") {
  core::FlagTable table;
  declare_trained_model_flags(table);
  return read_trained_model_options(core::parse_flags(table, arguments), path);
}

TEST(TrainedModelFlags, EachReachesItsOption) {
  const frontends::TrainedModelOptions plain = read({"--train_dir=run"});
  EXPECT_EQ(plain.path, "run");
  EXPECT_EQ(plain.model, "");
  EXPECT_EQ(plain.dataset, "");
  EXPECT_EQ(plain.num_classes, 0);
  EXPECT_EQ(plain.image_size, nn::Size2d(0));
  EXPECT_EQ(plain.averaged_weights, std::nullopt);
  EXPECT_EQ(plain.damaged, train::DamagedCheckpoints::kStop);
  const frontends::TrainedModelOptions given =
      read({"--weights=w.safetensors", "--model=resnet20", "--data_name=cifar10", "--num_classes=7",
            "--image_size=24x40", "--weights_of=last", "--ignore_damaged_checkpoints"});
  EXPECT_EQ(given.path, "w.safetensors");
  EXPECT_EQ(given.model, "resnet20");
  EXPECT_EQ(given.dataset, "cifar10");
  EXPECT_EQ(given.num_classes, 7);
  EXPECT_EQ(given.image_size, nn::Size2d(24, 40));
  EXPECT_EQ(given.averaged_weights, false);
  EXPECT_EQ(given.damaged, train::DamagedCheckpoints::kPassOver);
  EXPECT_EQ(read({"--train_dir=run", "--weights_of=average"}).averaged_weights, true);
  EXPECT_EQ(read({}, "file").path, "file");
}

TEST(TrainedModelFlags, TheNumberOfClassesEndsWhereItShould) {
  EXPECT_EQ(read({"--train_dir=run", "--num_classes=0"}).num_classes, 0) << "what the file says";
  EXPECT_EQ(read({"--train_dir=run", "--num_classes=16777216"}).num_classes, 16'777'216);
  EXPECT_THROW(read({"--train_dir=run", "--num_classes=-1"}), core::Error);
  EXPECT_THROW(read({"--train_dir=run", "--num_classes=16777217"}), core::Error);
}

TEST(TrainedModelFlags, OneModelIsNamedOnce) {
  const auto message = [](const std::vector<std::string>& arguments, const std::string& path = "") {
    return core::message_of([&] { read(arguments, path); }, core::ErrorCode::kInvalidArgument);
  };
  EXPECT_EQ(message({}), "one of --weights and --train_dir must be given");
  EXPECT_EQ(message({"--weights=w", "--train_dir=run"}),
            "--weights and --train_dir both name a model; leave one of them out");
  for (const char* flag : {"--weights=w", "--train_dir=run"}) {
    EXPECT_EQ(message({flag}, "file"), "a model is named by a flag, and by 'file', too; leave one of them out") << flag;
  }
}

}  // namespace
}  // namespace trainyard::cli::trained_model_flags_test
