#include "trainyard/train/checkpoint/tensorflow_weights.h"

#include <limits>
#include <map>
#include <string>
#include <vector>

#include <ATen/ops/add.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/testing/tensorflow_checkpoint_writer.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/models/tf_cnn/variable_names.h"
#include "trainyard/nn/execution/declared_set.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::train::tensorflow_weights_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::Not;
using Variables = std::map<std::string, formats::TestVariable>;

at::Tensor value_of(const nn::ParameterSet& set, const std::string& name) {
  const auto parameter = set.find(name);
  return parameter ? set.value(*parameter) : set.buffer(*set.find_buffer(name));
}

// All elements in the order of a tensor with axes [H, W, in, out] or [in, out].
formats::TestVariable in_tensorflow(const at::Tensor& ours, models::VariableLayout layout) {
  at::Tensor theirs = ours;
  if (layout == models::VariableLayout::kKernel) theirs = ours.permute({2, 3, 1, 0});
  if (layout == models::VariableLayout::kMatrix) theirs = ours.t();
  theirs = theirs.contiguous();
  return {theirs.sizes().vec(), {theirs.const_data_ptr<float>(), theirs.const_data_ptr<float>() + theirs.numel()}};
}

class TensorFlowWeights : public ::testing::Test {
 protected:
  TensorFlowWeights() {
    source_.initialize(7);
    for (int i = 0; i < static_cast<int>(source_.buffer_count()); ++i) source_.buffer(i).uniform_(0.5, 2);
    for (const models::BenchmarkVariable& variable : models::benchmark_variables(graph_)) {
      variables_["v0/cg/" + variable.variable] = in_tensorflow(value_of(source_, variable.parameter), variable.layout);
    }
  }
  std::string written() {
    formats::write_tensorflow_checkpoint(temp_.file("run/model.ckpt-110"), variables_, 110);
    return temp_.file("run");
  }
  std::string refusal() {
    return core::message_of([&] { static_cast<void>(named_for_graph(formats::open_tensor_file(written()), graph_)); });
  }

  core::TempDir temp_;
  nn::Graph graph_ = models::build_model("resnet20", "cifar10", {.num_classes = 11});
  nn::ParameterSet source_ = nn::declared_set(graph_);
  Variables variables_;
};

TEST_F(TensorFlowWeights, HaveOurNamesAndLayouts) {
  variables_["v0/cg/conv0/conv2d/kernel/Momentum"] = variables_["v0/cg/conv0/conv2d/kernel"];
  variables_["v1/cg/conv0/conv2d/kernel"] = {{1}, {0}};  // of another replica
  variables_["loss_scale"] = {{}, {128}};
  nn::ParameterSet loaded = nn::declared_set(graph_);
  const formats::TensorFile file = named_for_graph(formats::open_tensor_file(written()), graph_);
  EXPECT_EQ(load_weights(file, loaded, 11).tensors, 97);
  for (const formats::StoredTensor& tensor : file.tensors()) {
    EXPECT_TRUE(at::equal(value_of(loaded, tensor.name), value_of(source_, tensor.name))) << tensor.name;
  }
}

TEST_F(TensorFlowWeights, OfASingleReplicaAreInAnotherScope) {
  Variables renamed;
  for (const auto& [name, variable] : variables_) renamed["v" + name.substr(2)] = variable;
  variables_ = renamed;
  EXPECT_EQ(refusal(), "no error");
}

TEST_F(TensorFlowWeights, AreStrict) {
  const Variables all = variables_;
  variables_.erase("v0/cg/conv3/batchnorm3/gamma");
  variables_["v0/cg/conv99/conv2d/kernel"] = {{1}, {0}};
  variables_["v0/cg/conv99/conv2d/kernel/Momentum"] = {{1}, {0}};
  EXPECT_THAT(refusal(), AllOf(HasSubstr("is not of resnet20"),
                               HasSubstr("missing in the checkpoint: v0/cg/conv3/batchnorm3/gamma"),
                               HasSubstr("only in the checkpoint: v0/cg/conv99/conv2d/kernel;")));
  variables_ = all;
  variables_["v0/cg/conv0/conv2d/kernel"] = {{3, 3, 16, 3}, std::vector<float>(432)};
  const formats::TensorFile file = named_for_graph(formats::open_tensor_file(written()), graph_);
  nn::ParameterSet loaded = nn::declared_set(graph_);
  EXPECT_THAT(core::message_of([&] { load_weights(file, loaded, 11); }),
              HasSubstr("conv1.weight is [16, 3, 3, 3], in the file [3, 16, 3, 3]"));
}

// Of a kernel with another number of axes than four, and of a matrix with another one than two, the axes stay.
TEST_F(TensorFlowWeights, OfAnotherNumberOfAxesDoNotFit) {
  const Variables all = variables_;
  size_t changed = 0;
  for (const models::BenchmarkVariable& variable : models::benchmark_variables(graph_)) {
    const bool is_kernel = variable.parameter == "conv1.weight", is_matrix = variable.parameter == "fc.weight";
    if (!is_kernel && !is_matrix) continue;
    ++changed;
    const int64_t elements = value_of(source_, variable.parameter).numel();
    variables_ = all;
    variables_["v0/cg/" + variable.variable] = {{elements}, std::vector<float>(static_cast<size_t>(elements))};
    const formats::TensorFile file = named_for_graph(formats::open_tensor_file(written()), graph_);
    nn::ParameterSet loaded = nn::declared_set(graph_);
    EXPECT_THAT(core::message_of([&] { load_weights(file, loaded, 11); }),
                HasSubstr(is_kernel ? "conv1.weight is [16, 3, 3, 3], in the file [432]"
                                    : "fc.weight is [11, 64], in the file [704]"));
  }
  EXPECT_EQ(changed, 2U);
}

// The bottlenecks of v1 and v1.5 have the same shapes: only the scopes tell them apart.
TEST_F(TensorFlowWeights, OfAnotherVersionAreRefused) {
  const auto write = [&](const std::string& name) {
    const nn::Graph graph = models::build_model(name, "imagenet", {.num_classes = 2, .image_size = 64});
    nn::ParameterSet set = nn::declared_set(graph);
    variables_.clear();
    for (const models::BenchmarkVariable& variable : models::benchmark_variables(graph)) {
      variables_["v/cg/" + variable.variable] = in_tensorflow(value_of(set, variable.parameter), variable.layout);
    }
  };
  graph_ = models::build_model("resnet50", "imagenet", {.num_classes = 2, .image_size = 64});
  write("resnet50_v1.5");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("missing in the checkpoint: v/cg/resnet_v10/conv1/conv2d/kernel"),
                               HasSubstr("only in the checkpoint: v/cg/resnet_v1.50/conv1/batchnorm1/beta")));
}

// What a checkpoint of ours has, as numbers by name.
class Recorder : public core::StateWriter {
 public:
  void tensor(const std::string& name, const at::Tensor& value) override { tensors[name] = value.clone(); }
  void integer(const std::string& name, int64_t value) override { integers[name] = value; }
  void real(const std::string& /*name*/, double /*value*/) override { ADD_FAILURE(); }
  void text(const std::string& name, std::string_view value) override { texts[name] = value; }
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, int64_t> integers;
  std::map<std::string, std::string> texts;
};

TEST_F(TensorFlowWeights, TrainingsContinueWithStepAndMomentum) {
  std::map<std::string, at::Tensor> momenta;
  for (const models::BenchmarkVariable& variable : models::benchmark_variables(graph_)) {
    if (!source_.find(variable.parameter)) continue;
    const at::Tensor momentum = value_of(source_, variable.parameter).mul(0.5).add(1);
    momenta["optimizer/" + variable.parameter + ".momentum"] = momentum;
    variables_["v0/cg/" + variable.variable + "/Momentum"] = in_tensorflow(momentum, variable.layout);
  }
  const auto recorded = [&] {
    const TensorFlowTraining training(formats::open_tensor_file(written()), graph_);
    EXPECT_EQ(training.global_step(), 110);
    Recorder recorder;
    training.save(recorder);
    EXPECT_EQ(recorder.texts.at("run/optimizer"), training.optimizer());
    return recorder;
  };
  Recorder all = recorded();
  EXPECT_EQ(all.texts.at("run/optimizer"), "tf_nesterov");
  EXPECT_EQ(all.integers.at("trainer/global_step"), 110);
  EXPECT_EQ(all.tensors.size(), 97U + 59U);
  for (const auto& [name, momentum] : momenta) EXPECT_TRUE(at::equal(all.tensors.at(name), momentum)) << name;
  EXPECT_TRUE(at::equal(all.tensors.at("model/layer2.0.conv1.weight"), value_of(source_, "layer2.0.conv1.weight")));

  variables_.erase("v0/cg/conv3/batchnorm3/gamma/Momentum");
  EXPECT_THAT(core::message_of([&] { recorded(); }),
              AllOf(HasSubstr("(tf_nesterov) is not complete"),
                    HasSubstr("missing in the checkpoint: v0/cg/conv3/batchnorm3/gamma/Momentum")));
  Variables plain;
  for (const auto& [name, variable] : variables_) {
    if (!name.ends_with("/Momentum")) plain[name] = variable;
  }
  variables_ = plain;
  EXPECT_EQ(recorded().texts.at("run/optimizer"), "sgd");
  for (const models::BenchmarkVariable& variable : models::benchmark_variables(graph_)) {
    if (!source_.find(variable.parameter)) continue;
    for (const char* slot : {"/Adam", "/Adam_1"}) {
      variables_["v0/cg/" + variable.variable + slot] = plain["v0/cg/" + variable.variable];
    }
  }
  all = recorded();
  EXPECT_EQ(all.texts.at("run/optimizer"), "tf_adam");
  EXPECT_EQ(all.tensors.at("optimizer/fc.bias.update_count")[0].item<double>(), 110);
  EXPECT_TRUE(at::equal(all.tensors.at("optimizer/conv1.weight.mean"), value_of(source_, "conv1.weight")));

  save_weights(temp_.file("w.safetensors"), source_);
  EXPECT_THAT(
      core::message_of([&] { TensorFlowTraining(formats::open_tensor_file(temp_.file("w.safetensors")), graph_); }),
      HasSubstr("from a checkpoint of TensorFlow alone"));
}

TEST_F(TensorFlowWeights, OtherFilesStayAsTheyAre) {
  save_weights(temp_.file("w.safetensors"), source_);
  const formats::TensorFile file = named_for_graph(formats::open_tensor_file(temp_.file("w.safetensors")), graph_);
  EXPECT_NE(file.find("layer1.0.conv1.weight"), nullptr);
}

// torchvision's GoogLeNet has them in its published file.
TEST(NamedForGraph, LeavesOutAuxiliaryClassifiersThatTheGraphLacks) {
  const core::TempDir temp;
  const auto graph = [](bool with_heads, const std::string& name = "torchvision/googlenet") {
    nn::GraphBuilder b({.image = {3, 5, 5}, .name = name});
    const auto x = b.global_average_pool("pool", b.input());
    const auto logits = b.linear("fc", x, {.out_features = 4});
    std::vector<nn::GraphOutput> others;
    if (with_heads) others.push_back({"aux1", b.linear("aux1.fc2", x, {.out_features = 4}).id, 0.3});
    return b.build(logits, std::move(others));
  };
  nn::ParameterSet published = nn::declared_set(graph(true));
  published.initialize(1);
  save_weights(temp.file("w.safetensors"), published);
  const formats::TensorFile file = formats::open_tensor_file(temp.file("w.safetensors"));
  nn::ParameterSet alone = nn::declared_set(graph(false));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(load_weights(named_for_graph(file, graph(false)), alone, 4).tensors, 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("2 tensors are left out, those of auxiliary"));
  EXPECT_TRUE(at::equal(value_of(alone, "fc.weight"), value_of(published, "fc.weight")));
  EXPECT_EQ(named_for_graph(file, graph(true)).tensors().size(), 4U) << "the graph has them";
  EXPECT_EQ(named_for_graph(file, graph(false, "of_my_own")).tensors().size(), 4U) << "names mean nothing there";
}

TEST(TensorFlowBackbone, ACheckpointWithoutAnyOfItsVariablesIsNone) {
  const core::TempDir temp;
  const nn::Graph graph = models::build_model("ssd300", "coco", {.num_classes = 81});
  nn::ParameterSet loaded = nn::declared_set(graph);
  Variables variables{{"dense/kernel", {{1}, {0}}}};
  const std::string prefix = temp.file("backbone/model.ckpt-7");
  formats::write_tensorflow_checkpoint(prefix, variables, 7);
  EXPECT_THAT(core::message_of([&] { load_tensorflow_backbone(prefix, graph, loaded); }),
              AllOf(HasSubstr("this is no checkpoint of the backbone: "), HasSubstr("; missing there: "),
                    HasSubstr("conv2d/kernel")));
}

TEST(TensorFlowBackbone, IsLoadedByTheNamesOfTheOfficialModel) {
  const core::TempDir temp;
  const nn::Graph graph = models::build_model("ssd300", "coco", {.num_classes = 81});
  nn::ParameterSet source = nn::declared_set(graph), loaded = nn::declared_set(graph);
  source.initialize(1);
  loaded.initialize(2);
  Variables variables{{"dense/kernel", {{1}, {0}}}};
  for (const models::BenchmarkVariable& variable : models::official_backbone_variables(graph)) {
    variables[variable.variable] = in_tensorflow(value_of(source, variable.parameter), variable.layout);
  }
  const std::string prefix = temp.file("backbone/model.ckpt-28152");
  formats::write_tensorflow_checkpoint(prefix, variables, 28152);
  const at::Tensor head = value_of(loaded, "conv50.weight").clone();
  EXPECT_EQ(load_tensorflow_backbone(prefix, graph, loaded), 145);
  EXPECT_TRUE(at::equal(value_of(loaded, "resnet34_backbone.conv13.weight"),
                        value_of(source, "resnet34_backbone.conv13.weight")));
  EXPECT_TRUE(at::equal(value_of(loaded, "conv50.weight"), head));

  const std::vector<float> kernel = variables["conv2d/kernel"].values;
  variables["conv2d/kernel"].values.at(5) = std::numeric_limits<float>::quiet_NaN();
  formats::write_tensorflow_checkpoint(prefix, variables, 28152);
  EXPECT_THAT(core::message_of([&] { load_tensorflow_backbone(prefix, graph, loaded); }, core::ErrorCode::kCorruptData),
              AllOf(HasSubstr("weights hold NaN or infinity"), HasSubstr("conv2d/kernel"), HasSubstr("got 1 others")));
  variables["conv2d/kernel"].values = kernel;

  variables.erase("conv2d_7/kernel");
  variables["batch_normalization_2/gamma"] = {{3}, {1, 1, 1}};
  formats::write_tensorflow_checkpoint(prefix, variables, 28152);
  EXPECT_THAT(core::message_of([&] { load_tensorflow_backbone(prefix, graph, loaded); }),
              AllOf(HasSubstr("batch_normalization_2/gamma of 64"), HasSubstr("conv2d_7/kernel")));
  const nn::Graph other = models::build_model("resnet20", "cifar10", {.num_classes = 10});
  nn::ParameterSet others = nn::declared_set(other);
  EXPECT_THAT(core::message_of([&] { load_tensorflow_backbone(prefix, other, others); }),
              HasSubstr("the model has no ResNet-34 to load"));
}

}  // namespace
}  // namespace trainyard::train::tensorflow_weights_test
