// What `trainyard predict` says of a model that no registry knows is what train::Model says, of a checkpoint of fit()
// and of its file.
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/predict.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/core/base/tensors.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/sources/folder_source.h"
#include "trainyard/data/sources/tensor_source.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/formats/tensors/npy.h"
#include "trainyard/frontends/model/model_metadata.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/options.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/fit/fit.h"

namespace trainyard::cli::predict_model_test {
namespace {

// What a training of the library saves that has a loop of its own: no name of a model, no classes.
class OneTensor : public core::Stateful {
 public:
  void save(core::StateWriter& writer) const override { writer.tensor("model/x", core::new_tensor({2}).fill_(1)); }
  void load(const core::StateReader& /*reader*/) override {}
};

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

  // Trains on tensors in memory, whose samples have the shape of the graph's input, in the directory `name`.
  train::FitResult fit_tensors(const std::string& name, const nn::Graph& graph,
                               const std::string& transform = "imagenet") {
    nn::Shape shape = graph.input_shape();
    shape.insert(shape.begin(), 8);
    const at::Tensor samples = core::new_tensor(shape).fill_(0.5), labels = core::new_tensor({8}, at::kLong).fill_(1);
    train::FitOptions options;
    options.graph = graph;
    options.train = std::make_shared<data::TensorSource>(samples, labels, data::TensorSourceOptions{.batch_size = 4});
    options.train_dir = temp_.file(name);
    options.transform = transform;
    options.intra_op_threads = 1;
    return train::fit(options);
  }

  // Returns the options of `trainyard eval` on the images of SetUp().
  frontends::TfCnnOptions evaluation() {
    frontends::TfCnnOptions options;
    options.dialect = frontends::Dialect::kTrainyard;
    options.mode = frontends::RunMode::kEvaluation;
    options.model = "";
    options.input.data_dir = temp_.file("data");
    options.device.gpu = false;
    options.batch_size = 4;
    return options;
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
  nn::GraphBuilder b({.image = {3, 20, 20}, .name = "of_tensors"});
  const nn::Graph graph = b.build(b.linear("fc", b.global_average_pool("pool", b.input()), {.out_features = 2}));
  fit_tensors("tensors", graph);
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
  fit_tensors("undeclared", graph, "");
  asked.model.path = temp_.file("undeclared");
  EXPECT_EQ(predict(asked, out).images, 8) << "what the message says to pass is enough";
  frontends::TfCnnOptions evaluated = evaluation();
  evaluated.saving.train_dir = temp_.file("tensors");
  const std::string refused = core::message_of([&] { frontends::BenchmarkCnn(evaluated).run(out); });
  EXPECT_NE(refused.find("does not say how an image becomes its input"), std::string::npos) << refused;
  evaluated.input.images.input_preprocessor = "torchvision";
  frontends::BenchmarkCnn(evaluated).run(out);
  EXPECT_NE(out.str().find("Accuracy @ 1 = "), std::string::npos) << out.str();
}

// A training on vectors has no size of images to compare, and an array of them is predicted like one of images.
TEST_F(PredictModel, OfVectorsPredictsArraysByRunAndByFile) {
  nn::GraphBuilder b({.image = {6}, .name = "of_vectors"});
  const train::FitResult result = fit_tensors("vectors", b.build(b.linear("fc", b.input(), {.out_features = 2})));
  train::save_model(temp_.file("vectors.safetensors"), result.model->description(), result.model->parameters());
  const nn::Shape shape{3, 6}, expected_shape{3, 2};
  std::vector<float> numbers(18);
  std::iota(numbers.begin(), numbers.end(), -7.0F);
  core::local_file_system().write_file_atomically(temp_.file("x.npy"), formats::encode_npy<float>(shape, numbers));
  const at::Tensor expected = result.model->logits(at::from_blob(numbers.data(), shape)).contiguous();
  for (const char* path : {"vectors", "vectors.safetensors"}) {
    PredictOptions options;
    options.model.path = temp_.file(path);
    options.array_input = temp_.file("x.npy");
    options.array_output = temp_.file(std::string(path) + ".npy");
    std::ostringstream out;
    predict(options, out);
    const formats::NpyArray logits = formats::read_npy(*core::local_file_system().open_read(options.array_output));
    ASSERT_EQ(logits.shape, expected_shape) << path;
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(logits.values<float>()[i], expected.const_data_ptr<float>()[i], 1e-5F) << path;
    }
    options.array_input = options.array_output;  // [3, 2]
    const std::string message = core::message_of([&] { predict(options, out); });
    EXPECT_NE(message.find("expected [N, 6]"), std::string::npos) << message;
  }
}

// It is intact, so it need not be copied again or passed over.
TEST_F(PredictModel, ACheckpointWithoutAModelIsNotCalledDamaged) {
  train::CheckpointStore(temp_.file("loop"), /*max_to_keep=*/0).save(5, {}, OneTensor());
  PredictOptions options;
  options.model.path = temp_.file("loop");
  options.images = {temp_.file("data")};
  std::ostringstream out;
  const std::string message = core::message_of([&] { predict(options, out); }, core::ErrorCode::kUnsupported);
  EXPECT_NE(message.find("of no classifier"), std::string::npos) << message;
  EXPECT_EQ(message.find("damaged"), std::string::npos) << message;
}

// A transform writes three colours, which the memory of one would not hold.
TEST_F(PredictModel, OfOneColourTakesNoImageFiles) {
  nn::GraphBuilder b({.image = {1, 20, 20}, .name = "of_one_colour"});
  fit_tensors("grey", b.build(b.linear("fc", b.global_average_pool("pool", b.input()), {.out_features = 2})));
  PredictOptions options;
  options.model.path = temp_.file("grey");
  options.images = {temp_.file("data")};
  options.input.input_preprocessor = "torchvision";
  std::ostringstream out;
  const std::string message = core::message_of([&] { predict(options, out); }, core::ErrorCode::kUnsupported);
  EXPECT_NE(message.find("does not take images of three colours"), std::string::npos) << message;
  EXPECT_NE(message.find("[1, 20, 20]"), std::string::npos) << message;
  EXPECT_NE(message.find("--input"), std::string::npos) << message;
}

TEST_F(PredictModel, OfLabelSetsWithoutNamesIsNotEvaluatedOnOneLabelEach) {
  const auto model = train::load_model(temp_.file("own.safetensors"));
  train::ModelDescription description = model->description();
  description.classes.clear();
  description.label_sets = true;
  train::save_model(temp_.file("sets.safetensors"), description, model->parameters());
  frontends::TfCnnOptions options = evaluation();
  options.weights = temp_.file("sets.safetensors");
  std::ostringstream out;
  const std::string message = core::message_of([&] { frontends::BenchmarkCnn(options).run(out); });
  EXPECT_NE(message.find("another kind of labels"), std::string::npos) << message;
}

// An evaluation needs neither a registered model nor its name.
TEST_F(PredictModel, IsEvaluatedByWhatItSaysOfItself) {
  const auto evaluated = [&](const std::string& train_dir, const std::string& weights) {
    frontends::TfCnnOptions options = evaluation();
    options.saving.train_dir = train_dir;
    options.weights = weights;
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
