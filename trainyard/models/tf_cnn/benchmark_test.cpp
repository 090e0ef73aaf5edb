// tf_cnn_benchmarks' models against numbers that come from elsewhere.

#include <array>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "trainyard/models/registry/model_registry.h"

namespace trainyard::models::benchmark_test {
namespace {

int64_t parameters(const std::string& name, const std::string& dataset) {
  return build_model(name, dataset, {.num_classes = find_dataset(dataset).num_classes}).parameter_count();
}

struct Count {
  const char* name;
  const char* dataset;
  int64_t parameters;
};

// Trainable variables of tf_cnn_benchmarks' own code (NASNet: Keras'): tools/golden/tf_cnn_benchmarks_models.py.
constexpr Count kUpstream[] = {
    {"alexnet", "imagenet", 61838248},     {"googlenet", "imagenet", 6998552},
    {"inception3", "imagenet", 23817352},  {"inception4", "imagenet", 42648232},
    {"lenet", "imagenet", 2172840},        {"overfeat", "imagenet", 145920872},
    {"resnet101", "imagenet", 44549160},   {"resnet101_v2", "imagenet", 44509032},
    {"resnet152", "imagenet", 60192808},   {"resnet152_v2", "imagenet", 60137320},
    {"resnet50", "imagenet", 25557032},    {"resnet50_v1.5", "imagenet", 25557032},
    {"resnet50_v2", "imagenet", 25534312}, {"trivial", "imagenet", 4259780},
    {"vgg11", "imagenet", 132863336},      {"vgg16", "imagenet", 138357544},
    {"vgg19", "imagenet", 143667240},      {"alexnet", "cifar10", 1756426},
    {"trivial", "cifar10", 52235},         {"resnet20", "cifar10", 269722},
    {"resnet20_v2", "cifar10", 269402},    {"resnet32", "cifar10", 464154},
    {"resnet32_v2", "cifar10", 463610},    {"resnet44", "cifar10", 658586},
    {"resnet44_v2", "cifar10", 657818},    {"resnet56", "cifar10", 853018},
    {"resnet56_v2", "cifar10", 852026},    {"resnet110", "cifar10", 1727962},
    {"resnet110_v2", "cifar10", 1725962},  {"nasnet", "imagenet", 5289978},
    {"nasnetlarge", "imagenet", 88753150},
};

TEST(BenchmarkZoo, ParametersAreUpstreams) {
  for (const Count& count : kUpstream) {
    EXPECT_EQ(parameters(count.name, count.dataset), count.parameters) << count.name << " for " << count.dataset;
  }
}

// The paper's table 4 says 3.4 M for MobileNet v2 (torchvision's has 3,504,872), its table 1 3.3 M for NASNet-A
// (6 @ 768).
TEST(BenchmarkZoo, ParametersArePublished) {
  EXPECT_EQ(parameters("mobilenet", "imagenet"), 3504872);
  EXPECT_NEAR(static_cast<double>(parameters("nasnet", "cifar10")), 3.3e6, 0.1e6);
}

// Biases with all convolutions, two numbers a channel with all norms.
int64_t densenet_parameters(int64_t layers, int64_t growth) {
  int64_t count = 27 * 16 + 16, channels = 16;
  for (int block = 0; block < 3; ++block) {
    for (int64_t i = 0; i < layers; ++i, channels += growth) count += 2 * channels + 9 * channels * growth + growth;
    count += block < 2 ? 2 * channels + channels * channels + channels : 2 * channels + channels * 10 + 10;
  }
  return count;
}

TEST(BenchmarkZoo, DensenetsHaveTheParametersOfTheirFormula) {
  EXPECT_EQ(parameters("densenet40_k12", "cifar10"), densenet_parameters(12, 12));
  EXPECT_EQ(parameters("densenet100_k12", "cifar10"), densenet_parameters(32, 12));
  EXPECT_EQ(parameters("densenet100_k24", "cifar10"), densenet_parameters(32, 24));
  // The paper's table 2 says 1.0 M, 7.0 M and 27.2 M.
  EXPECT_NEAR(static_cast<double>(densenet_parameters(12, 12)), 1.0e6, 0.05e6);
  EXPECT_NEAR(static_cast<double>(densenet_parameters(32, 12)), 7.0e6, 0.05e6);
  EXPECT_NEAR(static_cast<double>(densenet_parameters(32, 24)), 27.2e6, 0.06e6);
}

// Norms of two numbers a channel after each convolution (v1), or in front of each (v2).
int64_t official_parameters(const std::array<int64_t, 4>& blocks, bool bottleneck, int version) {
  int64_t count = 49 * 3 * 64 + (version == 1 ? 128 : 0), in = 64;
  for (size_t stage = 0; stage < 4; ++stage) {
    const int64_t c = int64_t{64} << stage, out = bottleneck ? 4 * c : c;
    count += in * out + (version == 1 ? 2 * out : 0);  // beside the first block
    for (int64_t i = 0; i < blocks[stage]; ++i, in = out) {
      count += bottleneck ? in * c + 9 * c * c + c * out : 9 * in * c + 9 * c * c;
      const int64_t middle = bottleneck ? 2 * c : c;
      count += 2 * (middle + (version == 1 ? out : in));
    }
  }
  return count + (version == 2 ? 2 * in : 0) + in * 1000 + 1000;
}

TEST(BenchmarkZoo, OfficialResnetsHaveTheParametersOfTheirFormula) {
  // torchvision's, whose first stage has a shortcut without parameters up to 34 layers.
  EXPECT_EQ(official_parameters({3, 4, 6, 3}, true, 1), 25557032);
  EXPECT_EQ(official_parameters({2, 2, 2, 2}, false, 1), 11689512 + 64 * 64 + 2 * 64);
  struct Size {
    int layers;
    std::array<int64_t, 4> blocks;
  };
  for (const Size& size : std::initializer_list<Size>{{18, {2, 2, 2, 2}},
                                                      {34, {3, 4, 6, 3}},
                                                      {50, {3, 4, 6, 3}},
                                                      {101, {3, 4, 23, 3}},
                                                      {152, {3, 8, 36, 3}},
                                                      {200, {3, 24, 36, 3}}}) {
    const std::string name = fmt::format("official_resnet{}", size.layers);
    EXPECT_EQ(parameters(name, "imagenet"), official_parameters(size.blocks, size.layers >= 50, 1)) << name;
    EXPECT_EQ(parameters(name + "_v2", "imagenet"), official_parameters(size.blocks, size.layers >= 50, 2)) << name;
  }
}

TEST(BenchmarkZoo, DefaultsAreUpstreams) {
  EXPECT_EQ(find_model("alexnet", "imagenet").default_batch_size, 512);
  EXPECT_EQ(find_model("alexnet", "cifar10").default_batch_size, 128);
  EXPECT_EQ(find_model("nasnetlarge", "imagenet").default_batch_size, 16);
  EXPECT_EQ(find_model("official_resnet50", "imagenet").default_batch_size, 128);
  EXPECT_EQ(find_model("official_resnet50_v2", "imagenet").default_batch_size, 128);
  EXPECT_EQ(find_model("official_resnet200", "imagenet").default_batch_size, 32);
  EXPECT_EQ(find_model("resnet101", "imagenet").default_batch_size, 32);
  EXPECT_EQ(find_model("overfeat", "imagenet").image_size, 231);
  EXPECT_EQ(find_model("ssd300", "coco").default_batch_size, 32);
  EXPECT_EQ(find_model("ssd300", "coco").image_size, 300);
}

// The learning rates of the specification, written down from it: the first rate, the batch that it is for, its warm-up,
// and the epochs at which it falls to the next of its parts.
TEST(BenchmarkZoo, LearningRatesAreThoseOfTheirSpecification) {
  struct Row {
    std::vector<const char*> names;
    const char* dataset;
    DefaultSchedule schedule;
  };
  const DefaultSchedule plain{.learning_rate = 0.005},
      resnet{.learning_rate = 0.128,
             .batch_size = 256,
             .warmup_epochs = 5,
             .boundary_epochs = {30, 60, 80, 90},
             .factors = {1, 0.1, 0.01, 0.001, 0.0001},
             .takes_resnet_base_lr = true},
      official{.learning_rate = 0.0125,
               .batch_size = 32,
               .boundary_epochs = {30, 60, 80, 90},
               .factors = {1, 0.1, 0.01, 0.001, 0.0001}};
  const Row rows[] = {
      {{"trivial", "lenet", "alexnet", "overfeat", "googlenet", "vgg11", "vgg16", "vgg19", "inception3", "inception4",
        "mobilenet", "nasnet", "nasnetlarge"},
       "imagenet",
       plain},
      {{"resnet50", "resnet101", "resnet152", "resnet50_v1.5", "resnet50_v2", "resnet101_v2", "resnet152_v2"},
       "imagenet",
       resnet},
      {{"official_resnet18", "official_resnet34", "official_resnet50", "official_resnet101", "official_resnet152",
        "official_resnet200", "official_resnet18_v2", "official_resnet34_v2", "official_resnet50_v2",
        "official_resnet101_v2", "official_resnet152_v2", "official_resnet200_v2"},
       "imagenet",
       official},
      {{"trivial"}, "cifar10", plain},
      {{"trivial"}, "coco", plain},
      {{"ssd300"},
       "coco",
       {.learning_rate = 1e-3,
        .batch_size = 32,
        .warmup_epochs = 5,
        .boundary_steps = {160000, 200000},
        .factors = {1, 0.1, 0.01},
        .epoch_examples = 118287}},
      {{"nasnet"}, "cifar10", {.learning_rate = 0.025}},
      {{"resnet20", "resnet32", "resnet44", "resnet56", "resnet110", "resnet20_v2", "resnet110_v2"},
       "cifar10",
       {.learning_rate = 0.1, .boundary_epochs = {82, 123, 300}, .factors = {1, 0.1, 0.01, 0.002}}},
      {{"densenet40_k12", "densenet100_k12", "densenet100_k24"},
       "cifar10",
       {.learning_rate = 0.1, .boundary_epochs = {150, 225, 300}, .factors = {1, 0.1, 0.01, 0.001}}}};
  for (const Row& row : rows) {
    for (const char* const name : row.names) {
      SCOPED_TRACE(fmt::format("{} on {}", name, row.dataset));
      const DefaultSchedule& schedule = find_model(name, row.dataset).schedule;
      EXPECT_EQ(schedule.learning_rate, row.schedule.learning_rate);
      EXPECT_EQ(schedule.batch_size, row.schedule.batch_size);
      EXPECT_EQ(schedule.warmup_epochs, row.schedule.warmup_epochs);
      EXPECT_EQ(schedule.boundary_epochs, row.schedule.boundary_epochs);
      EXPECT_EQ(schedule.boundary_steps, row.schedule.boundary_steps);
      EXPECT_EQ(schedule.epoch_examples, row.schedule.epoch_examples);
      EXPECT_EQ(schedule.factors, row.schedule.factors);
      EXPECT_EQ(schedule.takes_resnet_base_lr, row.schedule.takes_resnet_base_lr);
    }
  }
}

// Torchvision's networks have a name of their own where a bare one is tf_cnn_benchmarks'.
TEST(BenchmarkZoo, OneRuleDecidesNames) {
  for (const std::string& name : model_names(DatasetFamily::kImagenet)) {
    const ModelInfo& info = find_model(name, "imagenet");
    if (!name.starts_with("torchvision/")) continue;
    EXPECT_EQ(info.equals, "torchvision " + name.substr(12));
    EXPECT_EQ(find_model(name.substr(12), "imagenet").equals, "tf_cnn_benchmarks " + name.substr(12));
  }
  EXPECT_EQ(&find_model("torchvision/resnet18", "imagenet"), &find_model("resnet18", "imagenet"));
}

}  // namespace
}  // namespace trainyard::models::benchmark_test
