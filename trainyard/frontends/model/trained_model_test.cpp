#include "trainyard/frontends/model/trained_model.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/sources/tensor_source.h"
#include "trainyard/formats/testing/tensorflow_checkpoint_writer.h"
#include "trainyard/nn/testing/quantizable_networks.h"
#include "trainyard/optim/averages/weight_average.h"
#include "trainyard/train/checkpoint/quantized_weights.h"
#include "trainyard/train/model/model.h"
#include "trainyard/train/model/quantize_model.h"
#include "trainyard/train/testing/initialized_model.h"

namespace trainyard::frontends::trained_model_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not;

// A network that no registry knows, of images of 6 x 8.
nn::Graph network(const std::string& name = "small", int64_t classes = 5) {
  nn::GraphBuilder b({.image = {3, 6, 8}, .name = name});
  const auto x =
      b.convolution("conv", b.input(), {.out_channels = 16, .kernel = 3, .padding = nn::Padding::all(1), .bias = true});
  return b.build(b.linear("fc", b.global_average_pool("pool", b.activation("relu", x)), {.out_features = classes}));
}

nn::Graph trivial(const std::string& dataset, int64_t classes, nn::Size2d size = 0) {
  return models::build_model("trivial", dataset, {.num_classes = classes, .image_size = size});
}

train::QuantizedModelFile quantized_network() {
  const nn::Graph graph = network();
  const nn::ParameterSet set = nn::quantization_testing::values_for(graph);
  data::TensorSource source(nn::quantization_testing::normal({16, 3, 6, 8}, "images"), at::zeros({16}, at::kLong),
                            {.batch_size = 8, .repeat = false});
  return train::quantize_model({.name = "small", .transform = "", .graph = graph}, set, source, {.batches = 2});
}

void expect_values(const nn::ParameterSet& actual, const nn::ParameterSet& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const nn::Segment& segment : expected.segments()) {
    const std::string& name = segment.spec.name;
    ASSERT_TRUE(actual.find(name)) << name;
    EXPECT_TRUE(actual.value(*actual.find(name)).equal(expected.value(*expected.find(name)))) << name;
  }
}

std::string refusal(const TrainedModelOptions& options, core::ErrorCode code = core::ErrorCode::kInvalidArgument) {
  return core::message_of([&] { static_cast<void>(load_trained_model(options)); }, code);
}

class QuantizedFile : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared = new core::TempDir;
    const train::QuantizedModelFile quantized = quantized_network();
    train::save_model(path(), quantized.description, *quantized.parameters);
  }
  static void TearDownTestSuite() { delete shared; }

  static std::string path() { return shared->file("int8.safetensors"); }
  static TrainedModelOptions options(std::optional<Precision> precision = Precision::kAuto) {
    TrainedModelOptions asked;
    asked.path = path();
    asked.precision = precision;
    return asked;
  }

  static inline core::TempDir* shared = nullptr;
};

TEST_F(QuantizedFile, ComputesInTheAskedPrecision) {
  const at::Tensor images = nn::quantization_testing::normal({4, 3, 6, 8}, "others");
  const at::Tensor expected = train::load_model(path())->logits(images).clone();
  for (const Precision precision : {Precision::kAuto, Precision::kInt8, Precision::kFloat32, Precision::kBfloat16}) {
    TrainedModelOptions asked = options(precision);
    asked.image_size = {6, 8};
    asked.num_classes = 5;
    asked.model = "small";
    const TrainedModel trained = load_trained_model(asked);
    const bool in_8_bits = precision == Precision::kAuto || precision == Precision::kInt8;
    EXPECT_EQ(trained.quantization != nullptr, in_8_bits) << precision_name(precision);
    EXPECT_EQ(trained.executor->context().quantization, trained.quantization);
    EXPECT_EQ(trained.executor->context().dtype, precision == Precision::kBfloat16 ? at::kBFloat16 : at::kFloat);
    EXPECT_EQ(trained.checkpoint.path, path());
    EXPECT_EQ(trained.checkpoint.global_step, 0);
    EXPECT_EQ(trained.identity.model, "small");
    EXPECT_EQ(trained.identity.dataset, "imagenet");
    EXPECT_EQ(trained.identity.num_classes, 5);
    EXPECT_FALSE(trained.input_known) << "it takes tensors";
    EXPECT_EQ(nn::Size2d(trained.input.height, trained.input.width), nn::Size2d(6, 8));
    EXPECT_FALSE(trained.input.training);
    const at::Tensor logits = trained.executor->forward(images, {}).to(at::kFloat);
    const double difference = logits.sub(expected).abs().max().item<double>();
    const double largest = expected.abs().max().item<double>();
    EXPECT_LT(difference, largest * (in_8_bits ? 1e-5 : 0.2)) << precision_name(precision);
  }
}

TEST_F(QuantizedFile, IsRefusedWhereItsGraphIsNotTheWantedOne) {
  const std::string remedy = "; leave the flag out, or quantize the model that you want: trainyard quantize";
  TrainedModelOptions asked = options();
  asked.model = "trivial";
  EXPECT_EQ(refusal(asked),
            fmt::format("the quantized model is another one: {}: expected trivial, got small{}", path(), remedy));
  asked = options();
  asked.num_classes = 6;
  EXPECT_EQ(refusal(asked), fmt::format("the quantized model has another number of classes: {}: expected 6, got [5]{}",
                                        path(), remedy));
  asked = options();
  for (const nn::Size2d size : {nn::Size2d(8, 6), nn::Size2d(6, 9), nn::Size2d(7, 8)}) {
    asked.image_size = size;
    EXPECT_EQ(refusal(asked), fmt::format("the quantized model takes images of another size: {}: expected {}x{}, got "
                                          "6x8{}",
                                          path(), size.height, size.width, remedy));
  }
}

TEST_F(QuantizedFile, IsRefusedWithoutAPrecisionAndOnGpus) {
  EXPECT_EQ(refusal(options(std::nullopt)),
            fmt::format("the file holds a model in 8-bit integers, which only predicts: {}: expected weights in "
                        "floating point; take the checkpoint or the file that it was quantized from",
                        path()));
  for (const Precision precision : {Precision::kAuto, Precision::kInt8, Precision::kFloat32}) {
    TrainedModelOptions asked = options(precision);
    asked.device = at::Device(at::kCUDA, 0);
    EXPECT_EQ(refusal(asked, core::ErrorCode::kUnsupported),
              fmt::format("models in 8-bit integers compute on CPUs: {}; pass --device=cpu", path()));
  }
}

TEST_F(QuantizedFile, IsRefusedWithoutItsGraph) {
  const train::QuantizedModelFile quantized = quantized_network();
  TrainedModelOptions asked = options();
  asked.path = shared->file("without_graph.safetensors");
  train::save_quantized_weights(asked.path, *quantized.description.graph, *quantized.parameters,
                                *quantized.description.quantization,
                                {{"trainyard.model", "small"}, {"trainyard.num_classes", "5"}});
  EXPECT_EQ(refusal(asked, core::ErrorCode::kCorruptData),
            fmt::format("the file of a quantized model lacks its graph: {}; quantize the model again: trainyard "
                        "quantize",
                        asked.path));
}

class FileOfWeights : public ::testing::Test {
 protected:
  // A file in floating point that holds its graph.
  std::string save_small(train::ModelDescription description = {}) const {
    description.name = "small";
    description.input = data::TransformOptions{
        .height = 6, .width = 8, .training = false, .resize_method = "bicubic", .eval_resize_size = 10};
    description.preprocessor = "torchvision";
    description.graph = network();
    std::string path = temp_.file("small.safetensors");
    train::save_model(path, std::move(description), small_);
    return path;
  }
  // A file of weights alone.
  std::string save_alone(const nn::ParameterSet& set) const {
    std::string path = temp_.file("alone.safetensors");
    train::save_weights(path, set);
    return path;
  }

  const core::TempDir temp_;
  const nn::ParameterSet small_ = nn::quantization_testing::values_for(network());
};

TEST_F(FileOfWeights, WithItsGraphNeedsNoRegistry) {
  const std::string path = save_small();
  for (const nn::Size2d size : {nn::Size2d(0), nn::Size2d(6, 8)}) {
    const TrainedModel trained = load_trained_model({.path = path, .image_size = size});
    EXPECT_EQ(trained.identity.model, "small");
    EXPECT_EQ(trained.identity.dataset, "imagenet");
    EXPECT_EQ(trained.identity.num_classes, 5);
    EXPECT_EQ(trained.input.resize_method, "bicubic");
    EXPECT_EQ(trained.input.eval_resize_size, 10);
    EXPECT_EQ(nn::Size2d(trained.input.height, trained.input.width), nn::Size2d(6, 8));
    EXPECT_EQ(trained.preprocessor, "torchvision");
    EXPECT_EQ(trained.input_origin, path);
    EXPECT_TRUE(trained.input_known);
    EXPECT_EQ(trained.quantization, nullptr);
    EXPECT_EQ(trained.executor->graph().input_shape(), (nn::Shape{3, 6, 8}));
    expect_values(*trained.parameters, small_);
  }
  for (TrainedModelOptions other : {TrainedModelOptions{.model = "other"}, TrainedModelOptions{.num_classes = 6},
                                    TrainedModelOptions{.image_size = {8, 6}}}) {
    other.path = path;
    EXPECT_THAT(refusal(other), HasSubstr(fmt::format("Invalid model name '{}' for dataset 'imagenet'",
                                                      other.model.empty() ? "small" : other.model)));
  }
  TrainedModelOptions int8{.path = path};
  int8.precision = Precision::kInt8;
  EXPECT_EQ(refusal(int8), fmt::format("the model has no scales to compute in 8-bit integers with: {0}: expected a "
                                       "file of `trainyard quantize`, got weights in floating point; trainyard "
                                       "quantize --weights={0} --data_dir=DIR --output=FILE",
                                       path));
  int8.precision = Precision::kBfloat16;
  EXPECT_EQ(load_trained_model(int8).executor->context().dtype, at::kBFloat16);
}

TEST_F(FileOfWeights, NamesItsClasses) {
  const TrainedModel named =
      load_trained_model({.path = save_small({.classes = {"a", "b", "c"}, .first_output = 1, .label_sets = true})});
  EXPECT_THAT(named.classes.names, ElementsAre("a", "b", "c"));
  EXPECT_EQ(named.classes.first_output, 1);
  EXPECT_THAT(named.label_names, ElementsAre("", "a", "b", "c"));
  EXPECT_TRUE(named.label_sets);
  const TrainedModel of_records =
      load_trained_model({.path = save_small({.classes = {"x", "", "z"}, .classes_of_records = true})});
  EXPECT_TRUE(of_records.classes.names.empty());
  EXPECT_THAT(of_records.label_names, ElementsAre("x", "", "z"));
  EXPECT_FALSE(of_records.label_sets);
}

TEST_F(FileOfWeights, WhatIsAskedOtherwiseThanItSaysIsTold) {
  TrainedModelOptions options;
  options.path = save_small();
  options.model = "other";
  options.dataset = "cifar10";
  options.num_classes = 6;
  options.build = [](const models::ModelOptions& model) { return network("other", model.num_classes); };
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(refusal(options), fmt::format("the weights are for another number of classes: {}: expected 6, got 5; pass "
                                          "--num_classes=5",
                                          options.path));
  std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr(options.path + " says --model=small; other is taken, as it was given"));
  EXPECT_THAT(told, HasSubstr(options.path + " says --data_name=imagenet; cifar10 is taken, as it was given"));
  EXPECT_THAT(told, HasSubstr(options.path + " says --num_classes=5; 6 is taken, as it was given"));
  options.model = "small";
  options.dataset = "imagenet";
  options.num_classes = 5;
  ::testing::internal::CaptureStderr();
  const TrainedModel same = load_trained_model(options);
  told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, Not(HasSubstr("is taken")));
  EXPECT_EQ(same.executor->graph().name, "other") << "as the function builds it";
}

TEST_F(FileOfWeights, AloneHasTheClassesOfTheDataSet) {
  const train::InitializedModel cifar10(trivial("cifar10", 10));
  TrainedModelOptions options{.path = save_alone(cifar10.set), .model = "trivial", .dataset = "cifar10"};
  const TrainedModel trained = load_trained_model(options);
  EXPECT_EQ(trained.identity.num_classes, 10);
  EXPECT_EQ(nn::Size2d(trained.input.height, trained.input.width), nn::Size2d(32));
  EXPECT_TRUE(trained.input_known);
  EXPECT_TRUE(trained.input.exif_orientation);
  EXPECT_FALSE(trained.input.training);
  EXPECT_EQ(trained.input.normalization, data::Normalization::symmetric());
  expect_values(*trained.parameters, cifar10.set);
  options.num_classes = 7;
  EXPECT_EQ(refusal(options), fmt::format("the weights are for another number of classes: {}: expected 7, got 10; pass "
                                          "--num_classes=10",
                                          options.path));
}

// Detectors score the background, too.
TEST_F(FileOfWeights, AloneOfBoxesHasTheirClassesAndInput) {
  const train::InitializedModel coco(trivial("coco", 81, {9, 12}));
  const TrainedModel trained =
      load_trained_model({.path = save_alone(coco.set), .model = "trivial", .dataset = "coco", .image_size = {9, 12}});
  EXPECT_EQ(trained.identity.num_classes, 81);
  EXPECT_EQ(nn::Size2d(trained.input.height, trained.input.width), nn::Size2d(9, 12));
  EXPECT_EQ(trained.input.normalization,
            data::Normalization::standardized(data::kImagenetMean, data::kImagenetStandardDeviation));
  EXPECT_TRUE(trained.input.exif_orientation);
  EXPECT_FALSE(trained.input.training);
}

TEST_F(FileOfWeights, AloneDoesNotSayItsModel) {
  const std::string path = save_alone(small_);
  EXPECT_EQ(refusal({.path = path}),
            fmt::format("a file of weights does not say which model they are of: {}; pass --model, one of `trainyard "
                        "models`",
                        path));
  const std::string missing = temp_.file("missing");
  EXPECT_EQ(refusal({.path = missing}, core::ErrorCode::kNotFound),
            fmt::format("there is no such checkpoint, directory or file of weights: {}; check --weights or --train_dir",
                        missing));
}

TEST_F(FileOfWeights, WithoutAnInputHasThatOfItsPublisher) {
  OpenedModel opened;
  opened.checkpoint.path = "a/resnet50-11ad3fa6.pth";
  opened.weights = std::make_shared<formats::TensorFile>(train::tensor_file_of(small_, opened.checkpoint.path));
  const auto published = input_of(opened, "torchvision/resnet50", "imagenet");
  ASSERT_TRUE(published);
  EXPECT_EQ(published->input.eval_resize_size, 232);
  EXPECT_EQ(published->preprocessor, "torchvision");
  EXPECT_EQ(published->origin, "a/resnet50-11ad3fa6.pth");
  EXPECT_THAT(published->choice, HasSubstr("as torchvision makes them for its weights of resnet50: "));
  EXPECT_TRUE(input_of(opened, "ssd300_vgg16", "coco"));
  EXPECT_FALSE(input_of(opened, "trivial", "coco"));
  EXPECT_FALSE(input_of(opened, "trivial", "cifar10"));
  EXPECT_FALSE(input_of(opened, "not_registered", "imagenet"));
  opened.input = TrainedInput{.preprocessor = "dali"};
  EXPECT_EQ(input_of(opened, "torchvision/resnet50", "imagenet")->preprocessor, "dali") << "as it says";
  opened.input.reset();
  opened.weights = nullptr;
  EXPECT_FALSE(input_of(opened, "torchvision/resnet50", "imagenet")) << "of a checkpoint";
}

TEST_F(FileOfWeights, OfTensorFlowIsRecognized) {
  std::map<std::string, formats::TestVariable> variables;
  variables["v/cg/x"].shape = {2};
  variables["v/cg/x"].values = {1, 2};
  formats::write_tensorflow_checkpoint(temp_.file("run/model.ckpt-5"), variables, 5);
  EXPECT_TRUE(holds_tensorflow_weights(temp_.file("run")));
  EXPECT_TRUE(holds_tensorflow_weights(temp_.file("run/")));
  EXPECT_TRUE(holds_tensorflow_weights(temp_.file("run/model.ckpt-5")));
  EXPECT_FALSE(holds_tensorflow_weights(temp_.file("missing")));
  EXPECT_FALSE(holds_tensorflow_weights(temp_.path()));
  EXPECT_FALSE(holds_tensorflow_weights(save_alone(small_)));
}

// The network trivial for 5 classes, as if a checkpoint of step 7 were open.
class OpenCheckpoint : public ::testing::Test {
 protected:
  static OpenedModel checkpoint_of(nn::Size2d size, std::shared_ptr<core::MemoryState> state) {
    OpenedModel opened;
    opened.checkpoint = {.path = "run/model.ckpt-7", .global_step = 7};
    opened.identity = {.model = "trivial", .dataset = "cifar10", .num_classes = 5};
    opened.image_size = size;
    opened.reader = std::move(state);
    return opened;
  }
  static std::shared_ptr<core::MemoryState> state_of(const nn::ParameterSet& set) {
    auto state = std::make_shared<core::MemoryState>();
    core::ScopedWriter writer(*state, "model/");
    set.save(writer);
    return state;
  }
  static std::string refused(const OpenedModel& opened, const TrainedModelOptions& options, core::ErrorCode code) {
    return core::message_of([&] { static_cast<void>(load_trained_model(opened, options)); }, code);
  }
};

TEST_F(OpenCheckpoint, IsLoadedWithWhatItSays) {
  const train::InitializedModel model(trivial("cifar10", 5, {4, 6}));
  OpenedModel checkpoint = checkpoint_of({4, 6}, state_of(model.set));
  checkpoint.classes = {.names = {"a", "b"}, .first_output = 1};
  checkpoint.label_sets = true;
  checkpoint.input = TrainedInput{.input = {.height = 4, .width = 6, .eval_resize_size = 9},
                                  .preprocessor = "torchvision",
                                  .origin = "run/model.ckpt-7"};
  const TrainedModel trained = load_trained_model(checkpoint, {});
  EXPECT_EQ(trained.checkpoint.path, "run/model.ckpt-7");
  EXPECT_EQ(trained.checkpoint.global_step, 7);
  EXPECT_EQ(trained.identity.model, "trivial");
  EXPECT_EQ(trained.identity.num_classes, 5);
  EXPECT_TRUE(trained.label_sets);
  EXPECT_EQ(trained.classes.first_output, 1);
  EXPECT_THAT(trained.label_names, ElementsAre("", "a", "b"));
  EXPECT_EQ(nn::Size2d(trained.input.height, trained.input.width), nn::Size2d(4, 6));
  EXPECT_EQ(trained.input.eval_resize_size, 9);
  EXPECT_FALSE(trained.input.training);
  EXPECT_EQ(trained.preprocessor, "torchvision");
  EXPECT_EQ(trained.input_origin, "run/model.ckpt-7");
  expect_values(*trained.parameters, model.set);
}

// Checkpoints of earlier releases do not store the size of their images: it is that of the network, for which the size
// before the crop was chosen.
TEST_F(OpenCheckpoint, OfAnEarlierReleaseKeepsTheSizeBeforeTheCrop) {
  const train::InitializedModel model(trivial("cifar10", 5));
  for (const nn::Size2d stored : {nn::Size2d(64, 20), nn::Size2d(20, 64)}) {
    const auto loaded = [&](nn::Size2d size) {
      OpenedModel checkpoint = checkpoint_of(size, state_of(model.set));
      checkpoint.input = TrainedInput{.input = {.height = stored.height, .width = stored.width, .eval_resize_size = 80},
                                      .preprocessor = "dali"};
      return load_trained_model(checkpoint, {.image_size = 32}).input;
    };
    EXPECT_EQ(loaded(0).eval_resize_size, 80) << stored.height;
    EXPECT_EQ(loaded(32).eval_resize_size, 40) << stored.height << ": 80 * 32 / 64";
    EXPECT_EQ(nn::Size2d(loaded(0).height, loaded(0).width), nn::Size2d(32));
  }
}

TEST_F(OpenCheckpoint, OfAnotherNumberOfClassesThanItsWeightsIsDamaged) {
  const train::InitializedModel model(trivial("cifar10", 5, {4, 6}));
  const auto refusal_of = [&](const std::vector<std::string>& left_out) {
    const auto all = state_of(model.set);
    auto state = std::make_shared<core::MemoryState>();
    for (const std::string& name : all->names()) {
      if (std::find(left_out.begin(), left_out.end(), name) == left_out.end()) all->copy(name, *state, name);
    }
    OpenedModel checkpoint = checkpoint_of({4, 6}, state);
    checkpoint.identity.num_classes = 7;
    return refused(checkpoint, {}, core::ErrorCode::kCorruptData);
  };
  const std::string problem =
      "damaged checkpoint: the checkpoint says another number of classes than its weights are "
      "for: run/model.ckpt-7/manifest.json, identity and ";
  const std::string of_weight = "model/affine2.weight: expected [7, 4096] for 7 classes, got [5, 4096]; ";
  const std::string of_bias = "model/affine2.bias: expected [7] for 7 classes, got [5]; ";
  EXPECT_THAT(refusal_of({}), HasSubstr(problem + of_weight));
  EXPECT_THAT(refusal_of({"model/affine2.bias"}), HasSubstr(problem + of_weight));
  EXPECT_THAT(refusal_of({"model/affine2.weight"}), HasSubstr(problem + of_bias));
  EXPECT_THAT(refusal_of({"model/affine2.weight", "model/affine2.bias"}), Not(HasSubstr("another number of classes")));
}

TEST_F(OpenCheckpoint, TakesTheAskedWeights) {
  const train::InitializedModel last(trivial("cifar10", 5, {4, 6})), averaged(trivial("cifar10", 5, {4, 6}));
  averaged.set.values().mul_(3);
  const auto state = state_of(last.set);
  core::ScopedWriter writer(*state, std::string(optim::kAveragedWeights));
  averaged.set.save(writer);
  OpenedModel checkpoint = checkpoint_of({4, 6}, state);
  for (const bool by_training : {true, false}) {
    checkpoint.averaged_weights = by_training;
    for (const std::optional<bool> asked : {std::optional<bool>(), std::optional(true), std::optional(false)}) {
      TrainedModelOptions options;
      options.averaged_weights = asked;
      ::testing::internal::CaptureStderr();
      const TrainedModel trained = load_trained_model(checkpoint, options);
      const std::string told = ::testing::internal::GetCapturedStderr();
      const bool taken = asked.value_or(by_training);
      expect_values(*trained.parameters, taken ? averaged.set : last.set);
      const char* const warning =
          by_training ? "the evaluations of run/model.ckpt-7 took its averaged weights; the last ones are taken, as "
                        "--weights_of says"
                      : "the evaluations of run/model.ckpt-7 took its last weights; the averaged ones are taken, as "
                        "--weights_of says";
      EXPECT_EQ(told.find(warning) != std::string::npos, taken != by_training) << told;
    }
  }
  TrainedModelOptions averages;
  averages.averaged_weights = true;
  expect_values(*load_trained_model(checkpoint_of({4, 6}, state_of(last.set)), averages).parameters, last.set);
}

TEST_F(OpenCheckpoint, ComputesIn8BitsOnlyWithScalesAndOnCpus) {
  const train::InitializedModel model(trivial("cifar10", 5, {4, 6}));
  OpenedModel checkpoint = checkpoint_of({4, 6}, state_of(model.set));
  TrainedModelOptions int8;
  int8.precision = Precision::kInt8;
  EXPECT_EQ(refused(checkpoint, int8, core::ErrorCode::kInvalidArgument),
            "the model has no scales to compute in 8-bit integers with: run/model.ckpt-7: expected a file of "
            "`trainyard quantize`, got weights in floating point; trainyard quantize --weights=run/model.ckpt-7 "
            "--data_dir=DIR --output=FILE");
  TrainedModelOptions any;
  any.precision = Precision::kAuto;
  EXPECT_EQ(load_trained_model(checkpoint, any).quantization, nullptr);
  checkpoint.has_scales = true;
  int8.device = at::Device(at::kCUDA, 0);
  EXPECT_EQ(refused(checkpoint, int8, core::ErrorCode::kUnsupported),
            "models in 8-bit integers compute on CPUs: run/model.ckpt-7; pass --device=cpu");
  for (const std::optional<Precision> precision :
       {std::optional<Precision>(), std::optional(Precision::kFloat32), std::optional(Precision::kBfloat16)}) {
    TrainedModelOptions in_float;
    in_float.precision = precision;
    EXPECT_EQ(load_trained_model(checkpoint, in_float).quantization, nullptr);
  }
}

// Its state is intact, but of another program's loop.
TEST_F(OpenCheckpoint, OfNoClassifierIsRefused) {
  const auto open = [](const std::string& model, int64_t classes) {
    train::OpenedCheckpoint checkpoint{.info = {.path = "run/model.ckpt-7", .global_step = 7},
                                       .identity = {.model = model, .dataset = "cifar10", .num_classes = classes},
                                       .reader = std::make_unique<core::MemoryState>()};
    return opened_model(std::move(checkpoint));
  };
  EXPECT_EQ(core::message_of([&] { open("", 0); }, core::ErrorCode::kUnsupported),
            "the checkpoint is of no classifier: run/model.ckpt-7: expected a named model whose output is [classes], "
            "got no name of a model; load it in the program that trained it");
  EXPECT_THAT(core::message_of([&] { open("mine", 0); }, core::ErrorCode::kCorruptData),
              HasSubstr("damaged checkpoint: the checkpoint does not say how many outputs its model has: "
                        "run/model.ckpt-7/manifest.json, identity, num_classes: expected at least 1, got 0; "));
  const OpenedModel one = open("mine", 1);
  EXPECT_EQ(one.identity.num_classes, 1);
  EXPECT_EQ(one.checkpoint.global_step, 7);
  EXPECT_TRUE(one.averaged_weights);
  EXPECT_FALSE(one.input || one.label_sets || one.has_scales || one.quantized);
  ASSERT_NE(one.reader, nullptr);
}

}  // namespace
}  // namespace trainyard::frontends::trained_model_test
