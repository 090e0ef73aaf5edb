#include "trainyard/train/model/quantize_model.h"

#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/sources/tensor_source.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/quantization/fold_batch_norms.h"
#include "trainyard/nn/testing/quantizable_networks.h"

namespace trainyard::train::quantize_model_test {
namespace {

using ::testing::Contains, ::testing::HasSubstr;

data::TensorSource source_of(const nn::Graph& graph, int64_t images, int64_t batch_size = 8) {
  nn::Shape shape = graph.input_shape();
  shape.insert(shape.begin(), images);
  return {nn::quantization_testing::normal(shape, "images"),
          at::zeros({images}, at::kLong),
          {.batch_size = batch_size, .repeat = false}};
}

ModelDescription described(const nn::Graph& graph) {
  return {.name = graph.name, .transform = "", .graph = graph};
}

TEST(QuantizeModel, IsSavedAndComputesTheSame) {
  const nn::Graph graph = nn::quantization_testing::residual_network();
  const nn::ParameterSet set = nn::quantization_testing::values_for(graph);
  data::TensorSource source = source_of(graph, 48);
  const QuantizedModelFile file = quantize_model(described(graph), set, source, {.batches = 6});
  EXPECT_EQ(file.model.report.calibration_images + file.model.report.held_out_images, 48);
  EXPECT_TRUE(file.model.report.warnings.empty());
  ASSERT_NE(file.description.quantization, nullptr);
  const core::TempDir folder;
  const std::string path = folder.file("int8.safetensors");
  save_model(path, file.description, *file.parameters);
  const auto loaded = load_model(path);
  const at::Tensor images = nn::quantization_testing::normal({4, 3, 12, 12}, "others");
  const Model here(file.description, file.parameters->clone());
  EXPECT_EQ(here.logits(images).sub(loaded->logits(images)).abs().max().item<double>(), 0);
  data::TensorSource again = source_of(graph, 48);
  EXPECT_THAT(core::message_of([&] { (void)quantize_model(*loaded, again, {.batches = 6}); }),
              HasSubstr("in 8 bits already"));
}

TEST(QuantizeModel, FewerImagesThanAskedAreReported) {
  const nn::Graph graph = nn::quantization_testing::residual_network();
  const nn::ParameterSet set = nn::quantization_testing::values_for(graph);
  data::TensorSource source = source_of(graph, 40);
  const QuantizedModelFile file = quantize_model(described(graph), set, source, {.batches = 16});
  EXPECT_THAT(file.model.report.warnings, Contains(HasSubstr("5 calibration batches instead of 16")));
}

TEST(QuantizeModel, RefusesWhatItCannotUse) {
  const nn::Graph graph = nn::quantization_testing::residual_network();
  const nn::ParameterSet set = nn::quantization_testing::values_for(graph);
  data::TensorSource source = source_of(graph, 8);
  EXPECT_THAT(core::message_of([&] { (void)quantize_model(described(graph), set, source, {.batches = 0}); }),
              HasSubstr("not positive"));
  EXPECT_THAT(core::message_of([&] { (void)quantize_model({.name = "net"}, set, source); }),
              HasSubstr("does not hold its graph"));
  (void)source.next();  // the only batch
  EXPECT_THAT(core::message_of([&] { (void)quantize_model(described(graph), set, source); }),
              HasSubstr("no calibration image"));
}

class FoldedZoo : public ::testing::TestWithParam<const char*> {};

TEST_P(FoldedZoo, ComputesTheSameWithoutBatchNorms) {
  const nn::Graph graph = models::build_model(GetParam(), "imagenet", {.num_classes = 10, .image_size = 64});
  nn::ParameterSet set = nn::quantization_testing::values_for(graph);
  const nn::FoldedNetwork folded = nn::fold_batch_norms(graph, set);
  EXPECT_LT(folded.graph.nodes.size(), graph.nodes.size());
  const at::Tensor images = nn::quantization_testing::normal({2, 3, 64, 64}, "images");
  EXPECT_LT(nn::quantization_testing::largest_difference(
                nn::quantization_testing::reference_logits(folded.graph, *folded.parameters, images),
                nn::quantization_testing::reference_logits(graph, set, images)),
            1e-3);
}

INSTANTIATE_TEST_SUITE_P(Zoo, FoldedZoo, ::testing::Values("resnet18", "mobilenet_v2", "mobilenet_v3_small"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace trainyard::train::quantize_model_test
