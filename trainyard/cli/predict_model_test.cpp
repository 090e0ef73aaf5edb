// What `trainyard predict` says of a model that no registry knows is what train::Model says, of a checkpoint of fit()
// and of its file.
#include <memory>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/predict.h"
#include "trainyard/core/base/tensors.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/sources/folder_source.h"
#include "trainyard/data/sources/tensor_source.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/frontends/model/model_metadata.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/options.h"
#include "trainyard/train/fit/fit.h"

namespace trainyard::cli::predict_model_test {
namespace {

class PredictModel : public ::testing::Test {
 protected:
  const core::TempDir temp_;

  void SetUp() override {
    for (const char* kind : {"noise", "waves"}) {
      core::local_file_system().make_directories(temp_.file(std::string("data/") + kind));
      for (int i = 0; i < 4; ++i) {
        const data::Image image =
            kind[0] == 'n' ? data::noisy_image(30, 40, static_cast<uint64_t>(i)) : data::smooth_image(30 + i, 40);
        const auto bytes = data::encode_png(image);
        const std::string content(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        core::local_file_system().write_file_atomically(
            temp_.file(std::string("data/") + kind + "/" + std::to_string(i) + ".png"), content);
      }
    }
    nn::GraphBuilder b({.image = {3, 20, 20}, .name = "of_my_own"});
    auto x = b.activation("relu", b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3, .bias = true}));
    train::FitOptions options;
    options.graph = b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 2}));
    options.train = data::open_folder(temp_.file("data"), {.size = 20, .batch_size = 4, .worker_threads = 1});
    options.train_dir = temp_.file("run");
    options.intra_op_threads = 1;
    const train::FitResult result = train::fit(options);
    train::save_model(temp_.file("own.safetensors"), result.model->description(), result.model->parameters());
  }
};

TEST_F(PredictModel, SaysTheSameOfCheckpointAndFile) {
  for (const char* path : {"run", "own.safetensors"}) {
    PredictOptions options;
    options.model.path = temp_.file(path);
    options.images = {temp_.file("data")};
    options.json = true;
    std::ostringstream out;
    EXPECT_EQ(predict(options, out).images, 8);
    const auto model = train::load_model(temp_.file(path), {.intra_op_threads = 1});
    std::istringstream lines(out.str());
    int compared = 0;
    for (std::string line; std::getline(lines, line);) {
      const auto said = nlohmann::json::parse(line);
      const train::Prediction expected = model->predict_file(said["image"].get<std::string>());
      ASSERT_EQ(said["top"].size(), expected.top.size());
      for (size_t i = 0; i < expected.top.size(); ++i) {
        EXPECT_EQ(said["top"][i]["class"], expected.top[i].output);
        EXPECT_EQ(said["top"][i]["name"], expected.top[i].name);
        EXPECT_NEAR(said["top"][i]["probability"].get<float>(), expected.top[i].probability, 1e-5F);
        ++compared;
      }
    }
    EXPECT_EQ(compared, 16) << path;
  }
}

// A training on tensors in memory: nothing says how an image becomes one of them, and no command makes that up.
TEST_F(PredictModel, DoesNotMakeUpAnInput) {
  train::FitOptions options;
  nn::GraphBuilder b({.image = {3, 20, 20}, .name = "of_tensors"});
  options.graph = b.build(b.linear("fc", b.global_average_pool("pool", b.input()), {.out_features = 2}));
  const at::Tensor images = core::new_tensor({8, 3, 20, 20}).fill_(0.5),
                   labels = core::new_tensor({8}, at::kLong).fill_(1);
  options.train = std::make_shared<data::TensorSource>(images, labels, data::TensorSourceOptions{.batch_size = 4});
  options.train_dir = temp_.file("tensors");
  options.intra_op_threads = 1;
  train::fit(options);
  EXPECT_FALSE(frontends::metadata_of(frontends::load_trained_model({.path = temp_.file("tensors")}))
                   .contains("trainyard.input"));
  EXPECT_TRUE(
      frontends::metadata_of(frontends::load_trained_model({.path = temp_.file("run")})).contains("trainyard.input"));
  PredictOptions asked;
  asked.model.path = temp_.file("tensors");
  asked.images = {temp_.file("data")};
  std::ostringstream out;
  const std::string message = core::message_of([&] { predict(asked, out); });
  EXPECT_NE(message.find("does not say how an image becomes its input"), std::string::npos) << message;
  EXPECT_NE(message.find("--input_preprocessor"), std::string::npos) << message;
  asked.input.input_preprocessor = "torchvision";
  EXPECT_EQ(predict(asked, out).images, 8);
}

// An evaluation needs neither a registered model nor its name.
TEST_F(PredictModel, IsEvaluatedByWhatItSaysOfItself) {
  const auto evaluated = [&](const std::string& train_dir, const std::string& weights) {
    frontends::TfCnnOptions options;
    options.dialect = frontends::Dialect::kTrainyard;
    options.mode = frontends::RunMode::kEvaluation;
    options.model = "";
    options.input.data_dir = temp_.file("data");
    options.saving.train_dir = train_dir;
    options.weights = weights;
    options.device.gpu = false;
    options.batch_size = 4;
    std::ostringstream out;
    frontends::BenchmarkCnn(options).run(out);
    EXPECT_NE(out.str().find("of_my_own"), std::string::npos) << out.str();
    const size_t accuracy = out.str().find("Accuracy @ 1 = ");
    EXPECT_NE(accuracy, std::string::npos) << out.str();
    return accuracy == std::string::npos ? "" : out.str().substr(accuracy, std::string("Accuracy @ 1 = 0.0000").size());
  };
  EXPECT_EQ(evaluated(temp_.file("run"), ""), evaluated("", temp_.file("own.safetensors")));
}

}  // namespace
}  // namespace trainyard::cli::predict_model_test
