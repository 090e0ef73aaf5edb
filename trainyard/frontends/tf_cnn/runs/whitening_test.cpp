// --whiten_images of `trainyard train`. The numbers of filters: nn/execution/patch_whitening_test.
#include <sstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/read_options.h"
#include "trainyard/train/model/model.h"

namespace trainyard::frontends::whitening_test {
namespace {

using ::testing::HasSubstr;

class WhitenFlags : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared = new core::TempDir;
    data::ShapesOptions options;
    options.train_count = 60;
    options.validation_count = 12;
    data::write_shapes(options, shared->file("shapes"));
  }
  static void TearDownTestSuite() { delete shared; }

  void train(const std::string& run, const std::vector<std::string>& more) const {
    std::vector<std::string> flags{"--data_dir=" + shared->file("shapes"),
                                   "--data_name=shapes",
                                   "--model=airbench94",
                                   "--device=cpu",
                                   "--batch_size=4",
                                   "--num_batches=1",
                                   "--init_learning_rate=0.05",
                                   "--weight_decay=0.01",
                                   "--num_intra_threads=1",
                                   "--deterministic",
                                   "--train_dir=" + temp_.file(run),
                                   "--existing_run=keep",
                                   "--progress=off",
                                   "--summary_verbosity=0"};
    flags.insert(flags.end(), more.begin(), more.end());
    std::ostringstream out;
    const core::FlagValues values = core::parse_flags(tf_cnn_flags(Dialect::kTrainyard), flags);
    BenchmarkCnn(read_options(values, Dialect::kTrainyard)).run(out);
  }
  at::Tensor value(const std::string& run, const std::string& name) const {
    const auto model = train::load_model(temp_.file(run));
    const nn::ParameterSet& set = model->parameters();
    return set.value(*set.find(name)).clone();
  }

  static inline core::TempDir* shared = nullptr;
  const core::TempDir temp_;
};

TEST_F(WhitenFlags, TheFirstConvolutionWhitensAndStays) {
  train("one", {"--whiten_images=40"});
  const at::Tensor weight = value("one", "whiten.weight");
  EXPECT_TRUE(at::equal(weight.narrow(0, 12, 12), weight.narrow(0, 0, 12).neg()));
  EXPECT_GT(weight.abs().max().item<float>(), 1) << "components of little variance are enlarged";
  train("three", {"--whiten_images=40", "--num_batches=3", "--tf_random_seed=9"});
  EXPECT_TRUE(at::equal(weight, value("three", "whiten.weight"))) << "by no seed, and frozen";
  EXPECT_FALSE(at::equal(value("one", "whiten.bias"), value("three", "whiten.bias")));
  train("replicas", {"--whiten_images=40", "--num_gpus=2", "--variable_update=replicated", "--batch_size=2"});
  EXPECT_TRUE(at::equal(weight, value("replicas", "whiten.weight")));
  train("others", {"--whiten_images=20"});
  EXPECT_FALSE(at::equal(weight, value("others", "whiten.weight")));
  train("more", {"--whiten_images=100000"});  // all that there are
  train("without", {});
  EXPECT_LT(value("without", "whiten.weight").abs().max().item<float>(), 0.5);
}

TEST_F(WhitenFlags, AContinuedRunKeepsItsCheckpoints) {
  train("run", {"--whiten_images=40"});
  const at::Tensor weight = value("run", "whiten.weight");
  train("run", {"--whiten_images=20", "--num_batches=2"});
  EXPECT_TRUE(at::equal(weight, value("run", "whiten.weight")));
}

TEST_F(WhitenFlags, RefusesWhatCannotBeWhitened) {
  const auto refused = [&](const std::vector<std::string>& flags) {
    return core::message_of([&] { train("refused", flags); });
  };
  EXPECT_THAT(refused({"--whiten_images=40", "--model=resnet20"}), HasSubstr("cannot be whitened"));
  EXPECT_THAT(refused({"--whiten_images=40", "--data_dir=", "--synthetic"}), HasSubstr("no training images"));
  train("weights", {});
  EXPECT_THAT(refused({"--whiten_images=40", "--weights=" + temp_.file("weights")}),
              HasSubstr("a first convolution of their own"));
}

TEST_F(WhitenFlags, IsForTrainings) {
  for (const char* mode : {"--eval", "--forward_only"}) {
    EXPECT_THAT(core::message_of([&] { train("mode", {"--whiten_images=9", mode}); }), HasSubstr("is for trainings"));
  }
}

}  // namespace
}  // namespace trainyard::frontends::whitening_test
