#include "trainyard/train/checkpoint/quantized_weights.h"

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/tensors/safetensors.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/nn/execution/declared_set.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::train::quantized_weights_test {
namespace {

using formats::TensorType;
using ::testing::AllOf, ::testing::HasSubstr;

constexpr auto kDamaged = core::ErrorCode::kCorruptData;

// A convolution and a linear layer in 8 bits, with another linear layer in float behind them.
nn::Graph pebbles() {
  nn::GraphBuilder b({.image = {3, 6, 5}, .name = "pebbles"});
  auto x = b.activation("relu", b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3, .bias = true}));
  x = b.activation("act", b.linear("fc1", b.global_average_pool("pool", x), {.out_features = 5}));
  return b.build(b.linear("fc2", x, {.out_features = 2}));
}

nn::Quantization scales() {
  return {.activations = {{pebbles().nodes[0].name, {.scale = 0.02F, .zero_point = 114}},
                          {"relu", {.scale = 0.05F, .zero_point = 0}},
                          {"pool", {.scale = 0.03F, .zero_point = 0}}},
          .weights = {{"conv", {0.1F, 0.01F, 1e-3F, 7}}, {"fc1", {0.3F, 0.7F, 1.1F, 1e-6F, 1e6F}}},
          .in_float = {{"fc2", "too \"small\""}}};
}

// Weights of the layers in 8 bits are multiples of their scales that span -127..127; all others are any numbers.
nn::ParameterSet values() {
  nn::ParameterSet set = nn::declared_set(pebbles());
  set.initialize(5);
  for (const auto& [layer, of_channels] : scales().weights) {
    const at::Tensor weight = set.value(*set.find(layer + ".weight"));
    auto* const value = weight.mutable_data_ptr<float>();
    const int64_t row = weight.numel() / weight.size(0);
    for (int64_t i = 0; i < weight.numel(); ++i) {
      const auto integer = static_cast<float>(i * 37 % 255 - 127);
      value[i] = integer * of_channels[static_cast<size_t>(i / row)];
    }
  }
  return set;
}

class QuantizedFile : public ::testing::Test {
 protected:
  struct Tensor {
    TensorType type;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  using Tensors = std::map<std::string, Tensor>;

  const core::TempDir temp_;
  const std::string path_ = temp_.file("pebbles.safetensors");
  const nn::Graph graph_ = pebbles();

  void SetUp() override { save_quantized_weights(path_, graph_, values(), scales(), {{"about", "pebbles"}}); }

  // Writes the file again after a change of its tensors and metadata.
  void change(const std::function<void(Tensors&, std::map<std::string, std::string>&)>& edit) const {
    save_quantized_weights(path_, graph_, values(), scales(), {});
    Tensors tensors;
    std::map<std::string, std::string> metadata;
    {
      const formats::TensorFile file = formats::open_tensor_file(path_);
      metadata = file.metadata();
      for (const auto& each : file.tensors()) tensors[each.name] = {each.type, each.shape, file.read_bytes(each)};
    }
    edit(tensors, metadata);
    std::vector<formats::TypedTensor> written;
    for (const auto& [name, tensor] : tensors) {
      written.push_back({name, tensor.type, tensor.shape, std::as_bytes(std::span(tensor.bytes))});
    }
    formats::write_safetensors(path_, written, metadata);
  }
  std::shared_ptr<const nn::Quantization> read() const {
    return read_quantization(formats::open_tensor_file(path_), graph_);
  }
  // Returns what is said of a file that has this changed.
  std::string refusal(const std::function<void(Tensors&)>& edit, core::ErrorCode code = kDamaged) const {
    change([&](Tensors& tensors, auto&) { edit(tensors); });
    return core::message_of([&] { static_cast<void>(read()); }, code);
  }
  static std::string floats(std::vector<float> numbers) {
    return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)};
  }
};

TEST_F(QuantizedFile, HoldsIntegersWithScales) {
  const formats::TensorFile file = formats::open_tensor_file(path_);
  EXPECT_EQ(describe(*file.find("conv.weight")), "int8 [4, 3, 3, 3]");
  EXPECT_EQ(describe(*file.find("conv.weight_scale")), "float32 [4]");
  EXPECT_EQ(describe(*file.find("conv.bias")), "float32 [4]");
  EXPECT_EQ(describe(*file.find("fc2.weight")), "float32 [2, 5]");
  EXPECT_EQ(describe(*file.find("relu.activation_scale")), "float32 [1]");
  EXPECT_EQ(describe(*file.find("relu.activation_zero_point")), "uint8 [1]");
  EXPECT_EQ(file.read_floats(*file.find("conv.weight"))[1], 37 - 127);
  EXPECT_EQ(file.metadata().at("about"), "pebbles");
  EXPECT_TRUE(holds_quantized_weights(file));
}

TEST_F(QuantizedFile, ComesBackBitForBit) {
  const formats::TensorFile file = formats::open_tensor_file(path_);
  const auto quantization = read();
  ASSERT_NE(quantization, nullptr);
  EXPECT_EQ(*quantization, scales());
  nn::ParameterSet set = nn::declared_set(graph_);
  load_quantized_weights(file, graph_, *quantization, set, 2);
  EXPECT_TRUE(at::equal(set.values(), values().values()));
  // And once more, byte for byte.
  const std::string before = core::local_file_system().read_file(path_);
  save_quantized_weights(temp_.file("again"), graph_, set, *quantization, {{"about", "pebbles"}});
  EXPECT_EQ(core::local_file_system().read_file(temp_.file("again")), before);
}

TEST_F(QuantizedFile, OfAModelInFloatHasNoScales) {
  save_weights(path_, values());
  EXPECT_EQ(read(), nullptr);
  EXPECT_FALSE(holds_quantized_weights(formats::open_tensor_file(path_)));
}

TEST_F(QuantizedFile, IsRefusedWhereFloatsAreRead) {
  nn::ParameterSet set = nn::declared_set(graph_);
  EXPECT_THAT(core::message_of([&] { load_weights(formats::open_tensor_file(path_), set, 2); }),
              AllOf(HasSubstr("8-bit integers, which only predicts"), HasSubstr("pebbles.safetensors")));
}

TEST_F(QuantizedFile, ScalesThatAreMissing) {
  EXPECT_THAT(refusal([](Tensors& t) { t.erase("conv.weight_scale"); }),
              AllOf(HasSubstr("missing"), HasSubstr("'conv.weight'"), HasSubstr("'conv.weight_scale'")));
  EXPECT_THAT(refusal([](Tensors& t) { t.erase("relu.activation_zero_point"); }),
              AllOf(HasSubstr("'relu.activation_scale'"), HasSubstr("'relu.activation_zero_point'")));
  EXPECT_THAT(refusal([](Tensors& t) { t.erase("relu.activation_scale"); }),
              AllOf(HasSubstr("'relu.activation_zero_point'"), HasSubstr("'relu.activation_scale'")));
  // A node without scales is one in float: the number of them says that some are missing.
  EXPECT_THAT(refusal([](Tensors& t) {
                t.erase("pool.activation_scale");
                t.erase("pool.activation_zero_point");
              }),
              HasSubstr("scale"));
  EXPECT_THAT(refusal([](Tensors& t) {
                t.erase("relu.activation_scale");
                t.erase("relu.activation_zero_point");
              }),
              AllOf(HasSubstr("activations"), HasSubstr("3 of them"), HasSubstr("2")));
  EXPECT_THAT(refusal([](Tensors& t) {
                t.erase("fc1.weight_scale");
                t["fc1.weight"] = {TensorType::kFloat32, {5, 4}, floats(std::vector<float>(20))};
              }),
              AllOf(HasSubstr("weights"), HasSubstr("2 of them")));
}

TEST_F(QuantizedFile, NumbersThatAreNoScales) {
  for (const float bad : {0.0F, -1.0F, std::nanf(""), std::numeric_limits<float>::infinity(), 1e-42F}) {
    EXPECT_THAT(refusal([&](Tensors& t) {
                  t["conv.weight_scale"].bytes = floats({1, bad, 1, 1});
                }),
                AllOf(HasSubstr("'conv.weight_scale'"), HasSubstr("positive and finite")))
        << bad;
    EXPECT_THAT(refusal([&](Tensors& t) { t["relu.activation_scale"].bytes = floats({bad}); }),
                AllOf(HasSubstr("'relu.activation_scale'"), HasSubstr("positive and finite")))
        << bad;
  }
}

TEST_F(QuantizedFile, TensorsOfAnotherForm) {
  EXPECT_THAT(refusal([](Tensors& t) {
                t["conv.weight_scale"] = {TensorType::kFloat32, {3}, floats({1, 1, 1})};
              }),
              AllOf(HasSubstr("float32 [4]"), HasSubstr("float32 [3]")));
  EXPECT_THAT(refusal([](Tensors& t) {
                t["conv.weight_scale"] = {TensorType::kInt32, {4}, floats({1, 1, 1, 1})};
              }),
              HasSubstr("int32 [4]"));
  EXPECT_THAT(refusal([](Tensors& t) {
                t["conv.weight"].shape = {4, 27};
              }),
              AllOf(HasSubstr("int8 [4, 3, 3, 3]"), HasSubstr("int8 [4, 27]")));
  EXPECT_THAT(refusal([](Tensors& t) {
                t["conv.weight"] = {TensorType::kFloat32, {4, 3, 3, 3}, floats(std::vector<float>(108))};
              }),
              AllOf(HasSubstr("int8 [4, 3, 3, 3]"), HasSubstr("float32")));
  EXPECT_THAT(refusal([](Tensors& t) {
                t["relu.activation_scale"] = {TensorType::kFloat32, {2}, floats({1, 1})};
              }),
              HasSubstr("float32 [1]"));
  EXPECT_THAT(refusal([](Tensors& t) { t["relu.activation_zero_point"].type = TensorType::kInt8; }),
              AllOf(HasSubstr("uint8 [1]"), HasSubstr("int8 [1]")));
}

TEST_F(QuantizedFile, ScalesThatAreTooMany) {
  const auto activation = [](Tensors& t, const std::string& node) {
    t[node + ".activation_scale"] = {TensorType::kFloat32, {1}, floats({1})};
    t[node + ".activation_zero_point"] = {TensorType::kUint8, {1}, std::string(1, '\0')};
  };
  EXPECT_THAT(refusal([&](Tensors& t) { activation(t, "nowhere"); }),
              AllOf(HasSubstr("no node"), HasSubstr("'nowhere.activation_scale'")));
  EXPECT_THAT(refusal([&](Tensors& t) { activation(t, "act"); }), HasSubstr("too many"));
  EXPECT_THAT(refusal([](Tensors& t) {
                t["nowhere.weight_scale"] = {TensorType::kFloat32, {1}, floats({1})};
              }),
              HasSubstr("no node"));
  EXPECT_THAT(refusal([](Tensors& t) {
                t["relu.weight_scale"] = {TensorType::kFloat32, {1}, floats({1})};
              }),
              HasSubstr("a convolution or a linear layer"));
}

TEST_F(QuantizedFile, WhatItSaysOfItself) {
  const auto said = [&](const std::optional<std::string>& text, core::ErrorCode code = kDamaged) {
    change([&](auto&, std::map<std::string, std::string>& metadata) {
      metadata.erase("trainyard.quantization");
      if (text) metadata["trainyard.quantization"] = *text;
    });
    return core::message_of([&] { static_cast<void>(read()); }, code);
  };
  EXPECT_THAT(said(std::nullopt), HasSubstr("trainyard.quantization"));
  for (const char* text : {"", "{", "[]", "{}", R"({"version":"1","weights":2,"activations":3,"in_float":{}})",
                           R"({"version":0,"weights":2,"activations":3,"in_float":{}})",
                           R"({"version":1,"weights":2,"activations":3,"in_float":[1]})", "[[[[[[[[]]]]]]]]"}) {
    EXPECT_THAT(said(text), HasSubstr("malformed")) << text;
  }
  EXPECT_THAT(said(std::string(201, 'x')), HasSubstr("got " + std::string(200, 'x') + "; "));
  EXPECT_THAT(said(R"({"version":2,"weights":2,"activations":3,"in_float":{}})", core::ErrorCode::kUnsupported),
              HasSubstr("later release"));
}

// The kernels' sums of weights rely on -127..127.
TEST_F(QuantizedFile, WeightsOutOfRange) {
  change([](Tensors& t, auto&) { t["conv.weight"].bytes[0] = static_cast<char>(-128); });
  const auto load = [&] {
    nn::ParameterSet set = nn::declared_set(graph_);
    const formats::TensorFile file = formats::open_tensor_file(path_);
    load_quantized_weights(file, graph_, *read_quantization(file, graph_), set, 2);
  };
  EXPECT_THAT(core::message_of(load, kDamaged), AllOf(HasSubstr("'conv.weight'"), HasSubstr("-128")));
  change([](Tensors& t, auto&) { t["conv.weight_scale"].bytes = floats({1, 1, 1, 3e38F}); });
  EXPECT_THAT(core::message_of(load, kDamaged), HasSubstr("finite with its scale"));
}

TEST_F(QuantizedFile, OnlyWhatFitsIsSaved) {
  const std::string other = temp_.file("other.safetensors");
  const auto refused = [&](const std::function<void(nn::Quantization&)>& edit, core::ErrorCode code) {
    nn::Quantization bad = scales();
    edit(bad);
    return core::message_of([&] { save_quantized_weights(other, graph_, values(), bad, {}); }, code);
  };
  constexpr auto kWrong = core::ErrorCode::kInvalidArgument;
  EXPECT_THAT(refused([](nn::Quantization& q) { q.weights["conv"][2] = 1e-5F; }, kWrong), HasSubstr("conv"));
  EXPECT_THAT(refused([](nn::Quantization& q) { q.weights["conv"][2] = 0; }, kWrong), HasSubstr("conv"));
  EXPECT_THAT(refused([](nn::Quantization& q) { q.activations["relu"].scale = std::nanf(""); }, kWrong),
              HasSubstr("relu"));
  EXPECT_THAT(refused([](nn::Quantization& q) { q.activations.erase("pool"); }, kWrong), HasSubstr("pool"));
  EXPECT_FALSE(core::local_file_system().exists(other));
}

// The joined projection of torch.nn.MultiheadAttention has a weight of another name and of two dimensions.
TEST(QuantizedWeights, HaveTheNamesThatTheirLayersGiveThem) {
  const core::TempDir temp;
  nn::GraphBuilder b({.image = {4, 3, 3}, .name = "joined"});
  const auto x =
      b.convolution("in_proj", b.input(),
                    {.out_channels = 6, .kernel = 1, .bias = true, .form = nn::Convolution::Form::kJoinedLinear});
  const nn::Graph graph = b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 2}));
  nn::ParameterSet set = nn::declared_set(graph);
  set.initialize(1);
  const nn::Quantization quantization{.activations = {{graph.nodes[0].name, {.scale = 0.1F, .zero_point = 9}}},
                                      .weights = {{"in_proj", std::vector<float>(6, 0.5F)}}};
  const at::Tensor weight = set.value(*set.find("in_proj_weight"));
  for (int64_t i = 0; i < weight.numel(); ++i) weight.mutable_data_ptr<float>()[i] = 0.5F * static_cast<float>(i - 12);
  save_quantized_weights(temp.file("f"), graph, set, quantization, {});
  const formats::TensorFile file = formats::open_tensor_file(temp.file("f"));
  EXPECT_EQ(describe(*file.find("in_proj_weight")), "int8 [6, 4]");
  const auto read = read_quantization(file, graph);
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(*read, quantization);
  nn::ParameterSet again = nn::declared_set(graph);
  load_quantized_weights(file, graph, *read, again, 2);
  EXPECT_TRUE(at::equal(again.values(), set.values()));
}

// The buffers of a training in 8 bits, and others that are none of theirs.
void save_scale(core::StateWriter& state, const std::string& node, double scale, double zero_point) {
  state.tensor(node + ".activation_scale", at::full({1}, scale, at::kFloat));
  state.tensor(node + ".activation_zero_point", at::full({1}, zero_point, at::kFloat));
}

TEST(TrainingScales, AreThoseOfTheBuffersOfACheckpoint) {
  core::MemoryState state;
  save_scale(state, "relu", 0.5, 3);
  save_scale(state, "pool", 0, 0);
  core::StateWriter& writer = state;
  writer.tensor("conv.weight", at::full({4, 3}, 1, at::kFloat));
  EXPECT_EQ(read_training_scales(state, "run/model.ckpt-5"),
            (nn::TrainingScales{{"pool", {.scale = 0, .zero_point = 0}}, {"relu", {.scale = 0.5F, .zero_point = 3}}}));
  EXPECT_TRUE(read_training_scales(core::MemoryState(), "run").empty());
}

TEST(TrainingScales, ThatCannotBeAreRefusedByName) {
  const auto refusal = [](const std::function<void(core::StateWriter&)>& save) {
    core::MemoryState state;
    save_scale(state, "pool", 0.25, 0);
    save(state);
    return core::message_of([&] { static_cast<void>(read_training_scales(state, "run/model.ckpt-5")); }, kDamaged);
  };
  EXPECT_THAT(
      refusal([](core::StateWriter& state) { state.tensor("relu.activation_scale", at::full({1}, 0.5, at::kFloat)); }),
      HasSubstr("a scale of 8 bits is missing: run/model.ckpt-5, relu.activation_zero_point: expected one "
                "number, got no such tensor"));
  EXPECT_THAT(refusal([](core::StateWriter& state) {
                state.tensor("relu.activation_scale", at::full({2}, 0.5, at::kFloat));
                state.tensor("relu.activation_zero_point", at::full({1}, 3, at::kFloat));
              }),
              HasSubstr("run/model.ckpt-5, relu.activation_scale: expected one number, got [2]"));
  EXPECT_THAT(refusal([](core::StateWriter& state) { save_scale(state, "relu", -1, 3); }),
              HasSubstr("the scale of an activation is not usable: run/model.ckpt-5, relu.activation_scale: expected "
                        "0, or a positive, finite number, and a zero point in 0..255, got -1 with zero point 3"));
  EXPECT_THAT(refusal([](core::StateWriter& state) { save_scale(state, "relu", 0.5, 256); }),
              HasSubstr("got 0.5 with zero point 256"));
}

// Each damaged copy is refused with an error, or it is a file.
TEST_F(QuantizedFile, DamagedFilesAreErrors) {
  const std::string good = core::local_file_system().read_file(path_);
  int refused = 0;
  formats::for_each_mutation(good, 300, [&](const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    try {
      const formats::TensorFile file = formats::open_tensor_file(path_);
      const auto quantization = read_quantization(file, graph_);
      nn::ParameterSet set = nn::declared_set(graph_);
      if (quantization != nullptr) {
        load_quantized_weights(file, graph_, *quantization, set, 2);
      } else {
        load_weights(file, set, 2);
      }
    } catch (const core::Error& error) {
      ++refused;
      EXPECT_NE(error.code(), core::ErrorCode::kInternal) << error.what();
    }
  });
  EXPECT_GT(refused, 100);
}

// What is wrong with the scales as a whole is said with the file and the node.
TEST_F(QuantizedFile, ALayerWhoseInputHasNoScaleIsNamed) {
  change([](Tensors& t, std::map<std::string, std::string>& metadata) {
    t.erase("pool.activation_scale");
    t.erase("pool.activation_zero_point");
    std::string& said = metadata.at("trainyard.quantization");
    const std::string three = "\"activations\":3";
    const size_t place = said.find(three);
    ASSERT_NE(place, std::string::npos) << said;
    said.replace(place, three.size(), "\"activations\":2");
  });
  EXPECT_THAT(core::message_of([&] { static_cast<void>(read()); }, kDamaged),
              HasSubstr("a layer with weights in 8 bits reads values that have no scale: " + path_ + ", node 'fc1'"));
}

}  // namespace
}  // namespace trainyard::train::quantized_weights_test
