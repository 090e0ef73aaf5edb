#include "trainyard/train/model/model.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/formats/tensors/safetensors.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/declared_set.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph_json.h"
#include "trainyard/nn/graph/graph_text.h"
#include "trainyard/nn/graph/quantization.h"
#include "trainyard/nn/quantization/quantized_model.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/model/model_description.h"

namespace trainyard::train::model_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr;

// No registry knows it.
nn::Graph flowers() {
  nn::GraphBuilder b({.image = {3, 24, 32}, .name = "flowers"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 8, .kernel = 3, .stride = 2});
  x = b.activation("relu", b.batch_norm("bn", x));
  return b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 3}));
}

nn::ParameterSet weights_of(const nn::Graph& graph) {
  nn::ParameterSet set = nn::declared_set(graph);
  set.initialize(3);
  for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) set.buffer(i).add_(0.25);
  return set;
}

ModelDescription description() {
  data::TransformOptions input{.height = 24, .width = 32};
  input.resize_antialias = true;
  input.eval_resize_size = 40;
  input.normalization = data::Normalization::standardized(data::kImagenetMean, data::kImagenetStandardDeviation);
  return {.input = input, .classes = {"daisy", "rose", "tulip"}, .graph = flowers()};
}

class Bundle : public ::testing::Test {
 protected:
  const core::TempDir temp_;
  const std::string path_ = temp_.file("flowers.safetensors");
  const std::vector<std::byte> image_ = data::encode_png(data::smooth_image(50, 70));

  void SetUp() override { save_model(path_, description(), weights_of(flowers())); }

  std::string content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& content) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc).write(content.data(), std::ssize(content));
  }
};

TEST_F(Bundle, BringsAllThatAPredictionNeeds) {
  const auto model = load_model(path_);
  EXPECT_EQ(nn::graph_text(model->graph()), nn::graph_text(flowers()));
  const ModelDescription& said = model->description();
  EXPECT_EQ(said.name, "flowers");
  EXPECT_EQ(said.num_classes, 3);
  EXPECT_EQ(said.input->height, 24);
  EXPECT_EQ(said.input->width, 32);
  EXPECT_EQ(said.input->eval_resize_size, 40);
  EXPECT_EQ(said.input->normalization, description().input->normalization);
  EXPECT_TRUE(at::equal(model->parameters().values(), weights_of(flowers()).values()));
}

// Against the executor and the transform, called by hand.
TEST_F(Bundle, PredictsAsAnEvaluationComputes) {
  data::TransformOptions input = *description().input;
  input.training = false;
  input.height = 24;
  input.width = 32;
  at::Tensor batch = at::zeros({1, 3, 24, 32});
  data::Record record{.bytes = image_};
  ASSERT_TRUE(data::transforms().get("imagenet")(input)->apply(record, {}, batch.mutable_data_ptr<float>()).ok());
  nn::ParameterSet set = weights_of(flowers());
  const auto executor = nn::make_executor("reference", flowers(), {.mode = nn::Mode::kInference, .parameters = &set});
  const at::Tensor expected = at::softmax(executor->forward(batch, {})[0], 0);

  const auto model = load_model(path_);
  EXPECT_TRUE(at::equal(model->decode(image_), batch));
  const Prediction prediction = model->predict(image_, 2);
  ASSERT_EQ(prediction.top.size(), 2U);
  for (const ClassProbability& each : prediction.top) {
    EXPECT_NEAR(each.probability, expected[each.output].item<float>(), 1e-5);
    EXPECT_EQ(each.name, description().classes[static_cast<size_t>(each.output)]);
  }
  EXPECT_EQ(prediction.top[0].output, expected.argmax().item<int64_t>());
  EXPECT_GE(prediction.top[0].probability, prediction.top[1].probability);
  EXPECT_EQ(model->predict(image_, 100).top.size(), 3U) << "as many as there are";
  EXPECT_GT(prediction.decode_seconds, 0);
  EXPECT_GT(prediction.model_seconds, 0);
}

TEST_F(Bundle, PredictsIn16BitsToo) {
  const auto exact = load_model(path_)->predict(image_).top;
  const auto rounded = load_model(path_, {.dtype = at::kBFloat16})->predict(image_).top;
  ASSERT_EQ(rounded.size(), exact.size());
  float sum = 0;
  for (const ClassProbability& each : rounded) {
    sum += each.probability;
    for (const ClassProbability& other : exact) {
      if (other.output != each.output) continue;
      EXPECT_NEAR(each.probability, other.probability, 0.02) << each.name;
    }
  }
  EXPECT_NEAR(sum, 1, 1e-5) << "of 32-bit numbers";
}

// Of an output [8, 11, 15] the five largest numbers would be classes of no meaning.
TEST_F(Bundle, WhatIsNoClassifierPredictsNoClasses) {
  nn::GraphBuilder b({.image = {3, 24, 32}, .name = "pictures"});
  const nn::Graph graph = b.build(b.convolution("conv", b.input(), {.out_channels = 8, .kernel = 3, .stride = 2}));
  const Model model({.input = description().input, .graph = graph}, weights_of(graph));
  EXPECT_THAT(core::message_of([&] { model.predict(image_); }, core::ErrorCode::kUnsupported),
              AllOf(HasSubstr("does not classify images: pictures: expected an output [classes], got"),
                    HasSubstr("[8, 11, 15]")));
  EXPECT_EQ(model.logits(model.decode(image_)).sizes().vec(), (std::vector<int64_t>{1, 8, 11, 15}));
}

TEST_F(Bundle, ManyThreadsPredictTheSame) {
  for (const int contexts : {1, 2, 8}) {
    const auto model = load_model(path_, {.contexts = contexts, .intra_op_threads = 1});
    std::vector<std::vector<std::byte>> images;
    std::vector<Prediction> expected;
    for (uint64_t i = 0; i < 4; ++i) {
      images.push_back(data::encode_png(data::noisy_image(30, 30, i)));
      expected.push_back(model->predict(images.back()));
    }
    std::vector<int> wrong(8, 0);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < wrong.size(); ++t) {
      threads.emplace_back([&, t] {
        for (size_t i = 0; i < 40; ++i) {
          const size_t which = (i + t) % images.size();
          const Prediction got = model->predict(images[which]);
          const bool same = got.top[0].output == expected[which].top[0].output &&
                            got.top[0].probability == expected[which].top[0].probability;
          wrong[t] += same ? 0 : 1;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(8, 0)) << contexts << " contexts";
  }
}

TEST_F(Bundle, AnErrorGivesTheContextBack) {
  const auto model = load_model(path_, {.contexts = 1});
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(model->logits(at::zeros({1, 3, 5, 5})), core::Error);
    EXPECT_THAT(core::message_of([&] { model->predict(std::vector<std::byte>(100), 5, "cat.jpg"); },
                                 core::ErrorCode::kCorruptData),
                HasSubstr("cat.jpg"));
  }
  EXPECT_EQ(model->predict(image_).top.size(), 3U);
  EXPECT_THAT(core::message_of([&] { model->predict(image_, 0); }), HasSubstr("top of 1 or more"));
  EXPECT_THAT(core::message_of([&] { model->predict_file(temp_.file("none.jpg")); }, core::ErrorCode::kNotFound),
              HasSubstr("none.jpg"));
}

TEST_F(Bundle, IsOfSafetensorsThatOthersRead) {
  const formats::TensorFile file = formats::open_tensor_file(path_);
  EXPECT_NE(file.find("conv.weight"), nullptr);
  EXPECT_NE(file.find("bn.running_var"), nullptr);
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

// Each damaged copy is refused with an error, or it is a model.
TEST_F(Bundle, DamagedFilesAreErrors) {
  const std::string good = content();
  int refused = 0;
  const auto load = [&](const std::string& bytes) {
    write(bytes);
    try {
      load_model(path_);
    } catch (const core::Error& error) {
      ++refused;
      EXPECT_NE(error.code(), core::ErrorCode::kInternal) << error.what();
    }
  };
  formats::for_each_mutation(good, 300, load);
  EXPECT_GT(refused, 100);
  for (const size_t length : {size_t{0}, size_t{7}, size_t{100}, good.size() / 2, good.size() - 1}) {
    refused = 0;
    load(good.substr(0, length));
    EXPECT_EQ(refused, 1) << length;
  }
}

// The description of flowers in 8 bits, and its parameters.
std::pair<ModelDescription, std::shared_ptr<nn::ParameterSet>> quantized_flowers() {
  const std::vector<at::Tensor> batches = {at::randn({8, 3, 24, 32}), at::randn({8, 3, 24, 32})};
  nn::QuantizedModel model = nn::quantize(flowers(), weights_of(flowers()), batches);
  ModelDescription said = description();
  said.graph = model.graph;
  said.quantization = model.quantization;
  return {said, model.parameters};
}

TEST_F(Bundle, InEightBitsComesBackBitForBit) {
  const auto [said, parameters] = quantized_flowers();
  ASSERT_FALSE(said.quantization->weights.empty());
  save_model(path_, said, *parameters);
  const Model before(said, parameters->clone());
  const auto after = load_model(path_);
  ASSERT_NE(after->description().quantization, nullptr);
  EXPECT_EQ(*after->description().quantization, *said.quantization);
  const at::Tensor images = at::randn({3, 3, 24, 32});
  EXPECT_TRUE(at::equal(after->logits(images), before.logits(images)));
  ModelDescription in_float = said;
  in_float.quantization = nullptr;
  const Model rounded(in_float, parameters->clone());
  EXPECT_FALSE(at::equal(after->logits(images), rounded.logits(images))) << "8 bits are another computation";
  EXPECT_TRUE(at::allclose(after->logits(images), rounded.logits(images), 0, 0.1));
  EXPECT_EQ(after->predict(image_).top.size(), 3U);
}

TEST_F(Bundle, DamagedFilesInEightBitsAreErrors) {
  const auto [said, parameters] = quantized_flowers();
  save_model(path_, said, *parameters);
  int refused = 0;
  formats::for_each_mutation(content(), 300, [&](const std::string& bytes) {
    write(bytes);
    try {
      static_cast<void>(load_model(path_)->logits(at::zeros({1, 3, 24, 32})));
    } catch (const core::Error& error) {
      ++refused;
      EXPECT_NE(error.code(), core::ErrorCode::kInternal) << error.what();
    }
  });
  EXPECT_GT(refused, 100);
}

// The graph must not ask for memory that the file does not have numbers for.
TEST_F(Bundle, TheGraphMustHaveTheWeightsOfTheFile) {
  const auto save = [&](const nn::Graph& graph) {
    ModelDescription said = description();
    said.graph = graph;
    said.num_classes = 3;
    said.name = "other";
    save_weights(path_, weights_of(flowers()), metadata_of(said));
  };
  nn::GraphBuilder b({.image = {3, 24, 32}, .name = "huge"});
  save(b.build(b.linear("fc",
                        b.flatten("flat", b.convolution("conv", b.input(), {.out_channels = 1 << 20, .kernel = 24})),
                        {.out_features = 3})));
  EXPECT_THAT(core::message_of([&] { load_model(path_); }),
              AllOf(HasSubstr("flowers.safetensors, 'conv.weight'"), HasSubstr("[1048576, 3, 24, 24]")));
  nn::GraphBuilder c({.image = {3, 24, 32}, .name = "renamed"});
  save(c.build(c.linear("head", c.global_average_pool("pool", c.input()), {.out_features = 3})));
  EXPECT_THAT(core::message_of([&] { load_model(path_); }), HasSubstr("no such tensor"));
}

TEST_F(Bundle, WhatIsMissingIsSaid) {
  EXPECT_THAT(core::message_of([&] { load_model(temp_.file("none")); }, core::ErrorCode::kNotFound), HasSubstr("none"));
  save_weights(path_, weights_of(flowers()));
  EXPECT_THAT(core::message_of([&] { load_model(path_); }),
              AllOf(HasSubstr("does not hold its graph"), HasSubstr("flowers.safetensors"), HasSubstr("export")));
  ModelDescription said = description();
  said.transform = "imagenot";
  save_model(path_, said, weights_of(flowers()));
  EXPECT_THAT(core::message_of([&] { load_model(path_); }, core::ErrorCode::kNotFound), HasSubstr("imagenet"));
  EXPECT_THAT(core::message_of([&] { load_model(path_, {.contexts = -1}); }), HasSubstr("contexts"));
}

TEST_F(Bundle, OnlyWhatFitsIsSaved) {
  const std::string other = temp_.file("other.safetensors");
  ModelDescription named = description();
  named.classes.push_back("weed");
  EXPECT_THAT(core::message_of([&] { save_model(other, named, weights_of(flowers())); }), HasSubstr("more names"));
  named.classes = {"tulip"};
  named.first_output = 2;
  EXPECT_THAT(core::message_of([&] { save_model(other, named, weights_of(flowers())); }),
              AllOf(HasSubstr("the first class"), HasSubstr("got 2")))
      << "load_model() would call the file damaged";
  nn::GraphBuilder b({.image = {3, 24, 32}, .name = "wider"});
  named = description();
  named.graph = b.build(b.linear("fc", b.global_average_pool("pool", b.input()), {.out_features = 3}));
  EXPECT_THAT(core::message_of([&] { save_model(other, named, weights_of(flowers())); }),
              AllOf(HasSubstr("'fc.weight'"), HasSubstr("[3, 3]"), HasSubstr("[3, 8]")));
  named.graph.reset();
  EXPECT_THAT(core::message_of([&] { save_model(other, named, weights_of(flowers())); }), HasSubstr("graph"));
  EXPECT_FALSE(core::local_file_system().exists(other));
}

TEST_F(Bundle, AnInputThatCannotBeMadeIsNotSaved) {
  const std::string other = temp_.file("other.safetensors");
  const auto refusal = [&](const std::function<void(data::TransformOptions&)>& change) {
    ModelDescription bad = description();
    change(*bad.input);
    return core::message_of([&] { save_model(other, bad, weights_of(flowers())); });
  };
  EXPECT_THAT(refusal([](data::TransformOptions& input) { input.eval_resize_size = 16; }),
              HasSubstr("resized to less than is cut out of them: expected at least 32 pixels, or 0, got 16"));
  EXPECT_THAT(refusal([](data::TransformOptions& input) { input.eval_central_part = 0.5F; }),
              HasSubstr("got 0.5, resized to 40"));
  EXPECT_FALSE(core::local_file_system().exists(other));
  EXPECT_EQ(refusal([](data::TransformOptions& input) { input.eval_resize_size = 32; }), "no error");
}

// How an evaluation makes the input does not depend on all options: small images are scaled in one way.
TEST(ModelInput, SaysWhatTheTransformDoes) {
  const auto said = [](const char* transform) {
    ModelDescription small = description();
    small.transform = transform;
    small.name = "flowers";
    small.num_classes = 3;
    small.input->resize_method = "bicubic";
    small.input->resize_antialias = small.input->resize_half_pixel_centers = false;
    small.input->eval_scaled_decode = small.input->exif_orientation = true;
    const auto json = nlohmann::json::parse(metadata_of(small).at("trainyard.input"));
    nlohmann::json parts;
    for (const char* name : {"eval_rule", "resize_method", "resize_antialias", "resize_half_pixel_centers",
                             "scaled_decode", "exif_orientation"}) {
      parts.push_back(json.at(name));
    }
    return parts.dump();
  };
  EXPECT_EQ(said("imagenet"), R"(["scaled_centre","bicubic",false,false,true,true])");
  EXPECT_EQ(said("cifar10"), R"(["stretched","bilinear",true,true,false,true])");
  EXPECT_EQ(said("coco"), R"(["whole","bicubic",false,false,true,false])");
}

// What train::fit() saves, by hand.
struct SavedFlowers : core::Stateful {
  bool with_graph = true;
  float bias = 0;
  void save(core::StateWriter& writer) const override {
    const nn::ParameterSet set = weights_of(flowers());
    set.value(*set.find("fc.bias")).add_(bias);
    for (const nn::Segment& segment : set.segments()) {
      writer.tensor("model/" + segment.spec.name, set.value(segment.id));
    }
    for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) {
      writer.tensor("model/" + set.buffer_spec(i).name, set.buffer(i));
    }
    ModelDescription said = description();
    said.input->height = 24;
    said.input->width = 32;
    said.num_classes = 3;
    if (with_graph) save_metadata(metadata_of(said), writer);
  }
  void load(const core::StateReader&) override {}
};

TEST_F(Bundle, ACheckpointIsAModel) {
  CheckpointStore store(temp_.file("run"));
  store.save(7, {.model = "flowers"}, SavedFlowers());
  const auto of_file = load_model(path_);
  for (const std::string& path : {temp_.file("run"), temp_.file("run/model.ckpt-7")}) {
    const auto model = load_model(path);
    EXPECT_TRUE(at::equal(model->parameters().values(), of_file->parameters().values())) << path;
    EXPECT_EQ(model->predict(image_).top[0].probability, of_file->predict(image_).top[0].probability);
  }
  SavedFlowers plain;
  plain.with_graph = false;
  store.save(8, {.model = "flowers"}, plain);
  EXPECT_THAT(core::message_of([&] { load_model(temp_.file("run")); }),
              AllOf(HasSubstr("model.ckpt-8"), HasSubstr("does not hold its graph")));
}

TEST_F(Bundle, AModelWhoseInputIsNotKnownIsNotSaved) {
  const std::string other = temp_.file("other.safetensors");
  ModelDescription unknown = description();
  unknown.input.reset();
  EXPECT_THAT(core::message_of([&] { save_model(other, unknown, weights_of(flowers())); }),
              AllOf(HasSubstr("nothing says how an image becomes the model's input: "), HasSubstr("other.safetensors"),
                    HasSubstr("FitOptions::input"), HasSubstr("data::input_presets()")));
  EXPECT_FALSE(core::local_file_system().exists(other));
  const Model model(unknown, weights_of(flowers()));
  EXPECT_EQ(model.logits(at::zeros({2, 3, 24, 32})).size(0), 2);
  EXPECT_THAT(core::message_of([&] { model.predict(image_); }, core::ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("the model does not say how an image becomes its input"), HasSubstr("flowers")));
}

TEST_F(Bundle, AModelOfTensorsIsSavedWithoutAnInput) {
  ModelDescription tensors = description();
  tensors.transform = "";
  save_model(path_, tensors, weights_of(flowers()));
  const auto model = load_model(path_);
  EXPECT_FALSE(model->description().input.has_value());
  EXPECT_EQ(model->description().classes, description().classes);
  EXPECT_THAT(core::message_of([&] { model->predict(image_); }), HasSubstr("logits()"));
  // Nobody has image files of other forms.
  nn::GraphBuilder b({.image = {2, 4, 4}, .name = "pairs"});
  const nn::Graph pairs = b.build(b.linear("fc", b.global_average_pool("pool", b.input()), {.out_features = 2}));
  save_model(path_, {.graph = pairs}, weights_of(pairs));
  EXPECT_EQ(load_model(path_)->logits(at::zeros({1, 2, 4, 4})).size(1), 2);
}

TEST_F(Bundle, TheBestOrTheLastCheckpointOfARun) {
  CheckpointStore store(temp_.file("run"));
  SavedFlowers last, best;
  best.bias = 1;
  store.save(9, {.model = "flowers"}, last);
  EXPECT_THAT(core::message_of([&] { load_model(temp_.file("run"), {.best = true}); }, core::ErrorCode::kNotFound),
              HasSubstr("the run has no best checkpoint"));
  store.save_best(4, {.model = "flowers"}, best);
  const auto bias = [](const std::shared_ptr<const Model>& model) {
    const nn::ParameterSet& set = model->parameters();
    return set.value(*set.find("fc.bias"))[0].item<float>();
  };
  const float plain = bias(load_model(path_));
  EXPECT_EQ(bias(load_model(temp_.file("run"))), plain);
  EXPECT_EQ(bias(load_model(temp_.file("run"), {.best = true})), plain + 1);
  EXPECT_EQ(bias(load_model(temp_.file("run/best"))), plain + 1);
  // A kill between the two renames by which another best one takes its name.
  core::local_file_system().rename(temp_.file("run/best"), temp_.file("run/best.replaced-1-0"));
  EXPECT_EQ(bias(load_model(temp_.file("run"), {.best = true})), plain + 1);
}

// What `trainyard train` saves, by hand: no graph, but the name of a registered model.
struct SavedByTheProgram : core::Stateful {
  nn::Graph graph = models::build_model("lenet", "imagenet", {.num_classes = 4, .image_size = 24});
  std::map<std::string, int64_t> integers{{"resize_antialias", 1},
                                          {"resize_half_pixel_centers", 0},
                                          {"eval_resize_size", 28},
                                          {"height", 24},
                                          {"width", 24}};
  double scale = 0.5;
  std::string classes = "1\ncat\ndog\nemu\n";
  void save(core::StateWriter& writer) const override {
    const nn::ParameterSet set = weights_of(graph);
    for (const nn::Segment& segment : set.segments()) {
      writer.tensor("model/" + segment.spec.name, set.value(segment.id));
    }
    for (const auto& [name, value] : integers) writer.integer("data/input/" + name, value);
    writer.text("data/input/resize_method", "bicubic");
    for (const char* colour : {"red", "green", "blue"}) {
      writer.real(std::string("data/input/scale/") + colour, scale);
      writer.real(std::string("data/input/shift/") + colour, -2);
    }
    writer.text("data/classes", classes);
  }
  void load(const core::StateReader&) override {}
};

TEST_F(Bundle, ARunFolderOfTheProgramIsAModel) {
  const std::string run = temp_.file("program");
  CheckpointStore store(run);
  const CheckpointIdentity identity{.model = "lenet", .dataset = "imagenet", .num_classes = 4};
  const SavedByTheProgram saved;
  store.save(3, identity, saved);
  const auto model = load_model(run);
  const ModelDescription& said = model->description();
  EXPECT_EQ(said.name, "lenet");
  EXPECT_EQ(said.transform, "imagenet");
  EXPECT_EQ(said.input->height, 24);
  EXPECT_EQ(said.input->resize_method, "bicubic");
  EXPECT_TRUE(said.input->resize_antialias);
  EXPECT_EQ(said.input->eval_resize_size, 28);
  EXPECT_EQ(said.input->normalization.scale[2], 0.5F);
  EXPECT_EQ(said.input->normalization.shift[0], -2);
  EXPECT_EQ(said.class_name(1), "cat");
  EXPECT_EQ(said.class_name(3), "emu");
  EXPECT_TRUE(at::equal(model->parameters().values(), weights_of(saved.graph).values()));
  EXPECT_EQ(model->predict(image_, 1).top.size(), 1U);

  const auto refused = [&](const std::function<void(SavedByTheProgram&)>& change, core::ErrorCode code) {
    SavedByTheProgram bad;
    change(bad);
    store.save(4, identity, bad);
    return core::message_of([&] { load_model(run); }, code);
  };
  constexpr auto kDamaged = core::ErrorCode::kCorruptData;
  EXPECT_THAT(refused([](SavedByTheProgram& s) { s.scale = std::nan(""); }, kDamaged), HasSubstr("scale/red"));
  EXPECT_THAT(refused([](SavedByTheProgram& s) { s.integers["height"] = int64_t{1} << 40; }, kDamaged),
              HasSubstr("data/input/height"));
  EXPECT_THAT(refused([](SavedByTheProgram& s) { s.integers["eval_resize_size"] = -1; }, kDamaged),
              HasSubstr("eval_resize_size"));
  EXPECT_THAT(refused([](SavedByTheProgram& s) { s.classes = "7\ncat\n"; }, kDamaged), HasSubstr("data/classes"));
  EXPECT_THAT(refused([](SavedByTheProgram& s) { s.classes = "0\na\nb\nc\nd\ne\n"; }, kDamaged),
              HasSubstr("data/classes"));
  store.save(5, {.model = "nobodys", .dataset = "imagenet", .num_classes = 4}, saved);
  EXPECT_THAT(core::message_of([&] { load_model(run); }), HasSubstr("nobodys"));
  store.save(6, {}, saved);
  EXPECT_THAT(core::message_of([&] { load_model(run); }), HasSubstr("does not hold its graph"));
}

// A checkpoint of the graph of flowers, without a tensor or with one of another shape.
struct WrongFlowers : SavedFlowers {
  nn::Shape shape{3, 7};  // of fc.weight; empty: it is missing
  void save(core::StateWriter& writer) const override {
    const nn::ParameterSet set = weights_of(flowers());
    for (const nn::Segment& segment : set.segments()) {
      if (segment.spec.name != "fc.weight") writer.tensor("model/" + segment.spec.name, set.value(segment.id));
    }
    if (!shape.empty()) writer.tensor("model/fc.weight", at::zeros(shape));
    for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) {
      writer.tensor("model/" + set.buffer_spec(i).name, set.buffer(i));
    }
    save_metadata(metadata_of(description()), writer);
  }
};

TEST_F(Bundle, ACheckpointMustHaveTheWeightsOfItsGraph) {
  CheckpointStore store(temp_.file("run"));
  WrongFlowers wrong;
  store.save(1, {.model = "flowers"}, wrong);
  const std::string problem = "the weights are not those of the model's graph: ", remedy = "; save the model again";
  EXPECT_EQ(core::message_of([&] { load_model(temp_.file("run")); }),
            problem + temp_.file("run/model.ckpt-1") + ", 'fc.weight': expected [3, 8], got [3, 7]" + remedy);
  wrong.shape = {};
  store.save(2, {.model = "flowers"}, wrong);
  EXPECT_EQ(core::message_of([&] { load_model(temp_.file("run")); }),
            problem + temp_.file("run/model.ckpt-2") + ", 'fc.weight': expected [3, 8], got no such tensor" + remedy);
}

TEST_F(Bundle, WhatContradictsTheGraphIsTold) {
  const auto refusal = [](const std::function<void(ModelDescription&)>& change) {
    ModelDescription wrong = description();
    change(wrong);
    return core::message_of([&] { const Model model(wrong, weights_of(flowers())); });
  };
  for (const int64_t classes : {2, 4}) {
    EXPECT_EQ(refusal([&](ModelDescription& said) { said.num_classes = classes; }),
              "the graph has another number of outputs than the model has classes: the model: expected " +
                  std::to_string(classes) + ", got [3]");
  }
  EXPECT_EQ(refusal([](ModelDescription& said) { said.num_classes = 3; }), "no error");
  EXPECT_EQ(refusal([](ModelDescription& said) { said.first_output = 1; }),
            "the model has more names of classes than outputs: the model: expected at most 3, got 3 from output 1 on");
  EXPECT_EQ(refusal([](ModelDescription& said) {
              said.classes = {};
              said.first_output = 1;
            }),
            "no error");
}

TEST(LoadModel, NumbersBelowZeroAreRefused) {
  EXPECT_EQ(core::message_of([] { LoadModelOptions{.contexts = -1}.validate(); }),
            "contexts is negative: LoadModelOptions: got -1");
  EXPECT_EQ(core::message_of([] { LoadModelOptions{.intra_op_threads = -2}.validate(); }),
            "intra_op_threads is negative: LoadModelOptions: got -2");
  EXPECT_EQ(core::message_of([] { LoadModelOptions{.contexts = 0, .intra_op_threads = 0}.validate(); }), "no error");
}

// Images of two channels are in no image file.
TEST_F(Bundle, OnlyThreeColoursAreDecoded) {
  const auto refusal = [&](const nn::Graph& graph) {
    const Model model({.name = "other", .graph = graph}, weights_of(graph));
    return core::message_of([&] { (void)model.decode(image_); }, core::ErrorCode::kUnsupported);
  };
  const std::string problem = "the model does not take images of three colours: other: expected [3, height, width], ",
                    remedy = "; call logits() with its input";
  nn::GraphBuilder b({.image = {2, 4, 5}, .name = "pairs"});
  EXPECT_EQ(refusal(b.build(b.linear("fc", b.global_average_pool("pool", b.input()), {.out_features = 2}))),
            problem + "got [2, 4, 5]" + remedy);
}

TEST_F(Bundle, LabelSetsHaveAProbabilityOfEachLabel) {
  ModelDescription sets = description();
  sets.label_sets = true;
  const Model model(sets, weights_of(flowers()));
  const at::Tensor logits = model.logits(model.decode(image_))[0];
  const Prediction prediction = model.predict(image_, 3);
  ASSERT_EQ(prediction.top.size(), 3U);
  for (const ClassProbability& each : prediction.top) {
    EXPECT_NEAR(each.probability, 1 / (1 + std::exp(-logits[each.output].item<double>())), 1e-6);
    EXPECT_EQ(each.name, sets.classes[static_cast<size_t>(each.output)]);
  }
  EXPECT_GE(prediction.top[1].probability, prediction.top[2].probability);
}

}  // namespace
}  // namespace trainyard::train::model_test
