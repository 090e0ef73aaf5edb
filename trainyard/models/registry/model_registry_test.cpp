#include "trainyard/models/registry/model_registry.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/golden.h"
#include "trainyard/nn/graph/layer_table.h"

namespace trainyard::models::model_registry_test {
namespace {

nn::Graph tiny(const ModelOptions& options) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = "tiny"});
  return b.build(b.linear("fc", b.flatten("flatten", b.input()), {.out_features = options.num_classes}));
}

TEST(ModelRegistry, FindsModelsByDatasetFamily) {
  EXPECT_EQ(find_model("trivial", "imagenet").image_size, 227);
  EXPECT_EQ(find_model("trivial", "synthetic").image_size, 227);
  EXPECT_EQ(find_model("trivial", "cifar10").image_size, 32);
  EXPECT_EQ(find_model("trivial", "coco").image_size, 300);
  EXPECT_EQ(&find_model("resnet20", "shapes"), &find_model("resnet20", "cifar10"));
}

// tf_cnn_benchmarks, datasets.py.
TEST(ModelRegistry, CocoHasTheNumbersOfTfCnnBenchmarks) {
  const DatasetInfo& coco = find_dataset("coco");
  EXPECT_EQ(coco.benchmark_classes, 81);
  EXPECT_EQ(coco.train_examples, 118287);
  EXPECT_EQ(coco.validation_examples, 4952);
  EXPECT_EQ(find_model("trivial", "coco").task, Task::kClassification);
}

TEST(ModelRegistry, SaysOfUpstreamsOtherModelsThatTheyAreNotCovered) {
  for (const char* name : {"deepspeech2", "ncf"}) {
    try {
      find_model(name, "imagenet");
      ADD_FAILURE() << name << " was found";
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kUnsupported) << name;
    }
  }
}

TEST(ModelRegistry, NamesWhatIsWrong) {
  EXPECT_EQ(core::message_of([] { find_model("resnet2", "cifar10"); }),
            "Invalid model name 'resnet2' for dataset 'cifar10'; did you mean 'resnet20'?");
  EXPECT_EQ(core::message_of([] { find_model("resnet20", "imagenet"); }),
            "Invalid model name 'resnet20' for dataset 'imagenet'; resnet20 is a model for cifar10: pass "
            "--data_name=cifar10");
  EXPECT_EQ(core::message_of([] { find_model("convnext", "imagenet"); }),
            "Invalid model name 'convnext' for dataset 'imagenet'; did you mean one of 'convnext_base', "
            "'convnext_small', 'convnext_tiny'?");
  EXPECT_EQ(core::message_of([] { find_model("trivial", "cifar-10"); }),
            "Invalid dataset name: cifar-10; did you mean 'cifar10'?");
  EXPECT_EQ(core::message_of([] { build_model("trivial", "cifar10", {.num_classes = 0}); }).substr(0, 41),
            "a model needs at least one class: trivial");
  EXPECT_EQ(core::code_of([] { build_model("resnet50", "imagenet", {.num_classes = int64_t{1} << 62}); }),
            core::ErrorCode::kInvalidArgument);
}

TEST(ModelRegistry, TakesModelsOfTheUserOnce) {
  register_model({.name = "tiny_of_the_test", .family = DatasetFamily::kCifar10, .image_size = 4, .build = tiny});
  const nn::Graph graph = build_model("tiny_of_the_test", "cifar10", {.num_classes = 5});
  EXPECT_EQ(graph.parameter_count(), 3 * 16 * 5 + 5);
  EXPECT_EQ(graph.name, "tiny_of_the_test") << "not as its builder calls it";
  EXPECT_EQ(core::message_of([] { register_model({.name = "tiny_of_the_test", .family = DatasetFamily::kCifar10}); }),
            "Model \"tiny_of_the_test\" is already registered for dataset \"cifar10\"");
}

// Published: 25,557,032 for torchvision's resnet50, whose network this is.
TEST(Zoo, Resnet50HasThePublishedParameters) {
  const nn::Graph graph = build_model("resnet50_v1.5", "imagenet", {.num_classes = 1000});
  EXPECT_EQ(graph.parameter_count(), 25557032);
  // 4.09 billion multiply-accumulates are published for it at 224 x 224.
  EXPECT_NEAR(static_cast<double>(graph.forward_flops()), 2 * 4.09e9, 2 * 0.01e9);
}

// 3x3 convolutions and two BN numbers a channel: 1 + 6n of them, and the classifier.
int64_t cifar_resnet_parameters(int64_t n, int64_t classes) {
  const auto convolution = [](int64_t in, int64_t out) { return 9 * in * out + 2 * out; };
  int64_t count = convolution(3, 16) + 2 * n * convolution(16, 16);
  for (int64_t width : {32, 64}) count += convolution(width / 2, width) + (2 * n - 1) * convolution(width, width);
  return count + 64 * classes + classes;
}

TEST(Zoo, CifarResnetsHaveTheParametersOfTheirFormula) {
  const std::vector<std::pair<const char*, int64_t>> blocks{
      {"resnet20", 3}, {"resnet32", 5}, {"resnet44", 7}, {"resnet56", 9}, {"resnet110", 18}};
  for (const auto& [name, n] : blocks) {
    EXPECT_EQ(build_model(name, "cifar10", {.num_classes = 10}).parameter_count(), cifar_resnet_parameters(n, 10))
        << name;
  }
  // The paper's table 6 says 0.27 M and 0.85 M.
  EXPECT_EQ(cifar_resnet_parameters(3, 10), 269722);
  EXPECT_EQ(cifar_resnet_parameters(9, 10), 853018);
}

TEST(Zoo, SmallModelsHaveTheParametersOfTheirLayers) {
  EXPECT_EQ(build_model("trivial", "cifar10", {.num_classes = 10}).parameter_count(),
            (3 * 32 * 32 + 1) + (4096 + 4096) + (4096 * 10 + 10));
  constexpr int64_t kChannels = 96, kTokens = 64 + 1, kHidden = 384;
  const int64_t layer = 2 * 2 * kChannels + (kChannels + 1) * 3 * kChannels + (kChannels + 1) * kChannels +
                        (kChannels + 1) * kHidden + (kHidden + 1) * kChannels;
  EXPECT_EQ(
      build_model("vit_cifar", "shapes", {.num_classes = 10}).parameter_count(),
      (3 * 4 * 4 + 1) * kChannels + kChannels + kTokens * kChannels + 4 * layer + 2 * kChannels + (kChannels + 1) * 10);
  EXPECT_EQ(build_model("lenet", "imagenet", {.num_classes = 10}).parameter_count(),
            (25 * 3 * 32 + 32) + (25 * 32 * 64 + 64) + (7 * 7 * 64 * 512 + 512) + (512 * 10 + 10));
}

TEST(Zoo, EveryModelBuildsForItsClassesAndSizes) {
  for (const DatasetFamily family : kDatasetFamilies) {
    for (const std::string& name : model_names(family)) {
      if (find_model(name, family_name(family)).task != Task::kClassification) continue;
      const nn::Graph graph = build_model(name, family_name(family), {.num_classes = 7});
      EXPECT_EQ(graph.output_shape(), nn::Shape{7}) << name;
      EXPECT_EQ(graph.input_shape()[1], find_model(name, family_name(family)).image_size) << name;
      const nn::Graph other = build_model(name, family_name(family), {.num_classes = 7, .image_size = {128, 160}});
      EXPECT_EQ(other.input_shape(), (nn::Shape{3, 128, 160})) << name;
      EXPECT_EQ(other.output_shape(), nn::Shape{7}) << name;
    }
  }
}

// Each size between the smallest and the model's own, and none below: what a search by halves takes for granted.
TEST(Zoo, TheSmallestImageIsTheOneThatStillHasAPixel) {
  const auto smallest = [](const char* name) { return smallest_image_side(find_model(name, "imagenet")); };
  EXPECT_EQ(smallest("inception_v3"), 75);  // which Keras' demands, too
  EXPECT_EQ(smallest("keras/inception_v3"), 75);
  EXPECT_EQ(smallest("inception3"), 75);
  EXPECT_EQ(smallest("vgg16"), 32);  // five times halved
  EXPECT_EQ(smallest("torchvision/vgg16"), 32);
  EXPECT_EQ(smallest("convnext_tiny"), 32);
  EXPECT_EQ(smallest("torchvision/alexnet"), 63);
  EXPECT_EQ(smallest("vit_b_16"), 16);
  EXPECT_EQ(smallest("resnet18"), 1);
  EXPECT_EQ(smallest("lenet"), 4);
  for (const char* name : {"inception_v3", "overfeat", "densenet121", "nasnet", "squeezenet1_1"}) {
    for (int64_t side = 1; side <= 128; ++side) {
      const auto build = [&] { build_model(name, "imagenet", {.num_classes = 7, .image_size = side}); };
      EXPECT_EQ(core::code_of(build) != core::ErrorCode::kInvalidArgument, side >= smallest(name)) << name << side;
    }
  }
}

TEST(Zoo, ARefusedSizeSaysWhichOnesAModelCanHave) {
  const auto refused = [](const char* name, nn::Size2d size) {
    return core::message_of([&] { build_model(name, "imagenet", {.num_classes = 7, .image_size = size}); },
                            core::ErrorCode::kInvalidArgument);
  };
  EXPECT_EQ(refused("inception_v3", {74, 299}),
            "model inception_v3 cannot have images of 74x299: expected at least 75x75, of which a pixel is left before "
            "the classifier; pass another --image_size; without it, the model's own is 299x299");
  EXPECT_EQ(refused("vit_b_16", {96, 100}),
            "model vit_b_16 cannot have images of 96x100: expected height and width that are multiples of 16; pass "
            "another --image_size; without it, the model's own is 224x224");
  for (const nn::Size2d size : {nn::Size2d{0, 224}, {224, -1}, {kLongestImageSide + 1, 224}}) {
    EXPECT_NE(refused("resnet18", size).find("height and width of 1 to 16384 pixels"), std::string::npos);
  }
}

// The grids decide: a stride, a padding or a number of channels of one that is another's shows.
TEST(Zoo, TheSameNetworkOfTwoLibrariesMultipliesAsOften) {
  const std::vector<std::pair<const char*, const char*>> pairs{{"keras/resnet50", "resnet50"},
                                                               {"keras/resnet101", "resnet101"},
                                                               {"keras/resnet152", "resnet152"},
                                                               {"keras/vgg16", "torchvision/vgg16"},
                                                               {"keras/vgg19", "torchvision/vgg19"},
                                                               {"keras/mobilenet_v2", "torchvision/mobilenet_v2"},
                                                               {"keras/densenet121", "torchvision/densenet121"},
                                                               {"keras/densenet169", "torchvision/densenet169"},
                                                               {"keras/densenet201", "torchvision/densenet201"},
                                                               {"keras/inception_v3", "torchvision/inception_v3"},
                                                               {"dali/resnet50", "torchvision/resnet50"},
                                                               {"official_resnet101", "torchvision/resnet101"},
                                                               {"official_resnet152", "torchvision/resnet152"}};
  for (const auto& [one, other] : pairs) {
    EXPECT_EQ(build_model(one, "imagenet", {.num_classes = 1000}).forward_flops(),
              build_model(other, "imagenet", {.num_classes = 1000}).forward_flops())
        << one;
  }
}

// NVIDIA's images have a fourth channel of zeros, behind the others.
TEST(Zoo, PaddlesResnetPadsTheChannelsOfItsImages) {
  const nn::Graph graph = build_model("paddle/resnet50", "imagenet", {.num_classes = 1000});
  EXPECT_EQ(graph.node("pad").description(), "0 + 1");
  EXPECT_EQ(graph.node("conv1").parameters.at(0).shape, (nn::Shape{64, 4, 7, 7}));
  EXPECT_EQ(graph.parameter_count(), 25557032 + 64 * 49);
}

TEST(ModelRegistry, DatasetsHaveTheirNumbers) {
  struct Row {
    const char *name, *family;
    int64_t benchmark_classes, classes, train, validation;
  };
  for (const Row& row :
       {Row{"imagenet", "imagenet", 1001, 1000, 1281167, 50000},
        Row{"synthetic", "imagenet", 1001, 1000, 1281167, 50000}, Row{"cifar10", "cifar10", 11, 10, 50000, 10000},
        Row{"shapes", "cifar10", 12, 12, 8000, 2000}, Row{"coco", "coco", 81, 80, 118287, 4952}}) {
    SCOPED_TRACE(row.name);
    const DatasetInfo& found = find_dataset(row.name);
    EXPECT_EQ(family_name(found.family), row.family);
    EXPECT_EQ(found.benchmark_classes, row.benchmark_classes);
    EXPECT_EQ(found.num_classes, row.classes);
    EXPECT_EQ(found.train_examples, row.train);
    EXPECT_EQ(found.validation_examples, row.validation);
  }
  EXPECT_EQ(dataset_names(), (std::vector<std::string>{"imagenet", "synthetic", "cifar10", "shapes", "coco"}));
  EXPECT_EQ(core::message_of([] { find_dataset("svhn"); }),
            "Invalid dataset name: svhn; known are imagenet, synthetic, cifar10, shapes and coco");
}

TEST(ModelRegistry, SaysFromWhichDatasetAModelIs) {
  EXPECT_EQ(first_dataset_with("resnet20"), "cifar10");
  EXPECT_EQ(first_dataset_with("ssd300"), "coco");
  EXPECT_EQ(first_dataset_with("trivial"), "imagenet") << "which comes first";
  EXPECT_EQ(first_dataset_with("of nobody"), "imagenet");
  EXPECT_EQ(image_size_text({160, 192}), "160x192");
  EXPECT_EQ(core::message_of([] { find_model("ncf", "imagenet"); }, core::ErrorCode::kUnsupported),
            "model ncf is outside what this project covers for now; `trainyard models` lists the models");
  EXPECT_EQ(core::message_of([] { build_model("vgg11", "imagenet", {.auxiliary_heads = true}); }),
            "this model has no auxiliary classifiers: vgg11: expected one that has: torchvision/googlenet or "
            "torchvision/inception_v3; leave --auxiliary_heads out");
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  EXPECT_EQ(core::message_of([] { build_model("trivial", "cifar10", {.num_classes = kMost + 1}); }),
            "a model needs at least one class: trivial: expected 1 to 2147483647 classes, got 2147483648 classes");
  EXPECT_EQ(build_model("trivial", "cifar10", {.num_classes = 1}).output_shape(), nn::Shape{1});
}

TEST(Zoo, LayerTables) {
  EXPECT_TRUE(core::matches_golden(nn::layer_table(build_model("resnet20", "cifar10", {.num_classes = 10})),
                                   "trainyard/models/testdata/resnet20.txt"));
  EXPECT_TRUE(core::matches_golden(nn::layer_table(build_model("resnet50_v1.5", "imagenet", {.num_classes = 1000})),
                                   "trainyard/models/testdata/resnet50_v1.5.txt"));
}

}  // namespace
}  // namespace trainyard::models::model_registry_test
