// All models of all data sets with every field of their description, written down from the originals: names, image
// sizes, batch sizes, learning rates and what published weights have in addition.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "trainyard/models/registry/model_registry.h"

namespace trainyard::models::model_table_test {
namespace {

using Names = std::vector<std::string>;

// "0.1 for 256, warm-up 5, epochs 30 60, steps , factors 1 0.1 0.01, examples 0"
std::string text_of(const DefaultSchedule& schedule) {
  return fmt::format("{} for {}, warm-up {}, epochs {}, steps {}, factors {}, examples {}{}", schedule.learning_rate,
                     schedule.batch_size, schedule.warmup_epochs, fmt::join(schedule.boundary_epochs, " "),
                     fmt::join(schedule.boundary_steps, " "), fmt::join(schedule.factors, " "), schedule.epoch_examples,
                     schedule.takes_resnet_base_lr ? ", --resnet_base_lr" : "");
}

std::string text_of(const ModelInfo& info) {
  return fmt::format("{} {} ({}): {}, images {} / {}, batch {}, rate {}, lacks {}", family_name(info.family), info.name,
                     info.task == Task::kDetection ? "detection" : "classification", info.equals, info.image_size,
                     info.image_size_multiple, info.default_batch_size, text_of(info.schedule),
                     fmt::join(info.auxiliary, " "));
}

// A line for each model as it ought to be.
class Table {
 public:
  Table() {
    add_torchvision();
    add_reference_networks();
    add_tf_cnn_benchmarks();
    add_airbench();
    std::sort(lines_.begin(), lines_.end());
  }
  const Names& lines() const { return lines_; }

 private:
  void add(ModelInfo info) { lines_.push_back(text_of(info)); }

  // torchvision's references: a tenth each 30 epochs, for a batch of 256.
  static DefaultSchedule reference(double rate) {
    return {.learning_rate = rate, .batch_size = 256, .boundary_epochs = {30, 60}, .factors = {1, 0.1, 0.01}};
  }

  void add_torchvision() {
    // tf_cnn_benchmarks has these names for other networks.
    const std::set<std::string> taken = {"alexnet",   "googlenet", "resnet50", "resnet101",
                                         "resnet152", "vgg11",     "vgg16",    "vgg19"};
    const auto info_of = [&](const std::string& name, double rate) {
      return ModelInfo{.name = taken.contains(name) ? "torchvision/" + name : name,
                       .equals = "torchvision " + name,
                       .schedule = reference(rate)};
    };
    for (const char* const name :
         {"alexnet", "convnext_base", "convnext_small", "convnext_tiny", "squeezenet1_1", "swin_t", "vgg11", "vgg11_bn",
          "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn"}) {
      add(info_of(name, 0.01));
    }
    for (const char* const name :
         {"densenet121", "densenet161", "densenet169", "densenet201", "efficientnet_b0", "mnasnet1_0", "mobilenet_v2",
          "mobilenet_v3_large", "mobilenet_v3_small", "regnet_y_1_6gf", "regnet_y_400mf", "resnet101", "resnet152",
          "resnet18", "resnet34", "resnet50", "resnext50_32x4d", "shufflenet_v2_x1_0", "wide_resnet50_2"}) {
      add(info_of(name, 0.1));
    }
    const auto sized = [&](const std::string& name, int64_t image_size, const Names& auxiliary = {}) {
      ModelInfo info = info_of(name, 0.1);
      info.image_size = image_size;
      info.auxiliary = auxiliary;
      add(info);
    };
    sized("efficientnet_b1", 240);
    sized("efficientnet_b2", 288);
    sized("efficientnet_b3", 300);
    sized("efficientnet_b4", 380);
    sized("efficientnet_v2_s", 384);
    sized("googlenet", 224, {"aux1.", "aux2."});
    sized("inception_v3", 299, {"AuxLogits."});
    ModelInfo transformer = info_of("vit_b_16", 0.01);
    transformer.image_size_multiple = 16;
    add(transformer);
    add({.name = "vit_cifar",
         .family = DatasetFamily::kCifar10,
         .equals = "torchvision's VisionTransformer with 4 layers of 96 channels",
         .image_size = 32,
         .image_size_multiple = 4,
         .schedule = reference(0.01)});
    add({.name = "ssd300_vgg16",
         .family = DatasetFamily::kCoco,
         .task = Task::kDetection,
         .equals = "torchvision ssd300_vgg16",
         .image_size = 300,
         .default_batch_size = 4,
         .schedule = {
             .learning_rate = 0.002, .batch_size = 32, .boundary_epochs = {80, 110}, .factors = {1, 0.1, 0.01}}});
  }

  void add_reference_networks() {
    struct Application {
      const char *name, *equals;
      double rate;
      int64_t image_size;
    };
    for (const Application& one :
         {Application{"keras/resnet50", "Keras ResNet50", 0.1, 224},
          Application{"keras/resnet101", "Keras ResNet101", 0.1, 224},
          Application{"keras/resnet152", "Keras ResNet152", 0.1, 224},
          Application{"keras/vgg16", "Keras VGG16", 0.01, 224}, Application{"keras/vgg19", "Keras VGG19", 0.01, 224},
          Application{"keras/mobilenet_v2", "Keras MobileNetV2", 0.1, 224},
          Application{"keras/densenet121", "Keras DenseNet121", 0.1, 224},
          Application{"keras/densenet169", "Keras DenseNet169", 0.1, 224},
          Application{"keras/densenet201", "Keras DenseNet201", 0.1, 224},
          Application{"keras/inception_v3", "Keras InceptionV3", 0.1, 299},
          Application{"paddle/resnet50", "NVIDIA's PaddlePaddle ResNet50", 0.1, 224},
          Application{"ffcv/resnet50", "FFCV's ResNet50 with BlurPool", 0.1, 224}}) {
      add({.name = one.name, .equals = one.equals, .image_size = one.image_size, .schedule = reference(one.rate)});
    }
    for (const std::string name : {"resnet50", "trivial"}) {
      add({.name = "dali/" + name,
           .equals = "DALI ResNet-N " + name,
           .default_batch_size = 64,
           .schedule = {.learning_rate = 0.1,
                        .batch_size = 256,
                        .warmup_epochs = 5,
                        .boundary_epochs = {30, 60, 80},
                        .factors = {1, 0.1, 0.01, 0.001}}});
    }
  }

  void add_tf_cnn(DatasetFamily family, const std::string& name, int64_t image_size, int64_t batch_size,
                  const DefaultSchedule& schedule = {}) {
    const bool detects = name == "ssd300";
    add({.name = name,
         .family = family,
         .task = detects ? Task::kDetection : Task::kClassification,
         .equals = name == "resnet50_v1.5" ? "torchvision resnet50" : "tf_cnn_benchmarks " + name,
         .image_size = image_size,
         .default_batch_size = batch_size,
         .schedule = schedule});
  }

  void add_tf_cnn_benchmarks() {
    constexpr auto kImagenet = DatasetFamily::kImagenet, kCifar10 = DatasetFamily::kCifar10,
                   kCoco = DatasetFamily::kCoco;
    add_tf_cnn(kImagenet, "alexnet", 227, 512);
    add_tf_cnn(kImagenet, "googlenet", 224, 32);
    add_tf_cnn(kImagenet, "inception3", 299, 32);
    add_tf_cnn(kImagenet, "inception4", 299, 32);
    add_tf_cnn(kImagenet, "lenet", 28, 32);
    add_tf_cnn(kImagenet, "mobilenet", 224, 32);
    add_tf_cnn(kImagenet, "nasnet", 224, 32);
    add_tf_cnn(kImagenet, "nasnetlarge", 331, 16);
    add_tf_cnn(kImagenet, "overfeat", 231, 32);
    add_tf_cnn(kImagenet, "trivial", 227, 32);
    for (const char* const name : {"vgg11", "vgg16", "vgg19"}) add_tf_cnn(kImagenet, name, 224, 64);
    const DefaultSchedule resnet{.learning_rate = 0.128,
                                 .batch_size = 256,
                                 .warmup_epochs = 5,
                                 .boundary_epochs = {30, 60, 80, 90},
                                 .factors = {1, 0.1, 0.01, 0.001, 0.0001},
                                 .takes_resnet_base_lr = true};
    for (const char* const name : {"resnet50", "resnet50_v1.5", "resnet50_v2"}) {
      add_tf_cnn(kImagenet, name, 224, 64, resnet);
    }
    for (const char* const name : {"resnet101", "resnet101_v2", "resnet152", "resnet152_v2"}) {
      add_tf_cnn(kImagenet, name, 224, 32, resnet);
    }
    const DefaultSchedule official{.learning_rate = 0.0125,
                                   .batch_size = 32,
                                   .boundary_epochs = {30, 60, 80, 90},
                                   .factors = {1, 0.1, 0.01, 0.001, 0.0001}};
    for (const int layers : {18, 34, 50, 101, 152, 200}) {
      for (const char* const version : {"", "_v2"}) {
        add_tf_cnn(kImagenet, fmt::format("official_resnet{}{}", layers, version), 224, layers == 50 ? 128 : 32,
                   official);
      }
    }
    add_tf_cnn(kCifar10, "trivial", 32, 32);
    add_tf_cnn(kCifar10, "nasnet", 32, 32, {.learning_rate = 0.025});
    add_tf_cnn(
        kCifar10, "alexnet", 32, 128,
        {.learning_rate = 0.1, .boundary_epochs = {100, 200, 300, 400}, .factors = {1, 0.1, 0.01, 0.001, 0.0001}});
    for (const int layers : {20, 32, 44, 56, 110}) {
      for (const char* const version : {"", "_v2"}) {
        add_tf_cnn(kCifar10, fmt::format("resnet{}{}", layers, version), 32, 128,
                   {.learning_rate = 0.1, .boundary_epochs = {82, 123, 300}, .factors = {1, 0.1, 0.01, 0.002}});
      }
    }
    for (const char* const name : {"densenet40_k12", "densenet100_k12", "densenet100_k24"}) {
      add_tf_cnn(kCifar10, name, 32, 64,
                 {.learning_rate = 0.1, .boundary_epochs = {150, 225, 300}, .factors = {1, 0.1, 0.01, 0.001}});
    }
    add_tf_cnn(kCoco, "trivial", 300, 32);
    add_tf_cnn(kCoco, "ssd300", 300, 32,
               {.learning_rate = 0.001,
                .batch_size = 32,
                .warmup_epochs = 5,
                .boundary_steps = {160000, 200000},
                .factors = {1, 0.1, 0.01},
                .epoch_examples = 118287});
  }

  // The scales of batch norms, which are ones in the original's files.
  void add_airbench() {
    add({.name = "airbench94",
         .family = DatasetFamily::kCifar10,
         .equals = "airbench airbench94_muon",
         .image_size = 32,
         .default_batch_size = 2000,
         .schedule = {.learning_rate = 0.1},
         .auxiliary = {"layers.1.norm1.weight", "layers.1.norm2.weight", "layers.2.norm1.weight",
                       "layers.2.norm2.weight", "layers.3.norm1.weight", "layers.3.norm2.weight"}});
    add({.name = "airbench96",
         .family = DatasetFamily::kCifar10,
         .equals = "airbench airbench96",
         .image_size = 32,
         .default_batch_size = 1024,
         .schedule = {.learning_rate = 0.1},
         .auxiliary = {"2.norm1.weight", "2.norm2.weight", "2.norm3.weight", "3.norm1.weight", "3.norm2.weight",
                       "3.norm3.weight", "4.norm1.weight", "4.norm2.weight", "4.norm3.weight"}});
  }

  Names lines_;
};

TEST(ModelTable, EachModelHasTheFieldsOfItsOriginal) {
  Names found;
  for (const DatasetFamily family : kDatasetFamilies) {
    for (const std::string& name : model_names(family)) {
      // Other tests of this program may have registered a model of their own.
      if (name != "tiny_of_the_test") found.push_back(text_of(find_model(name, family_name(family))));
    }
  }
  std::sort(found.begin(), found.end());
  EXPECT_EQ(fmt::format("{}", fmt::join(found, "\n")), fmt::format("{}", fmt::join(Table().lines(), "\n")));
}

TEST(ModelTable, EachGraphHasTheNameOfItsModel) {
  for (const DatasetFamily family : kDatasetFamilies) {
    for (const std::string& name : model_names(family)) {
      if (name == "tiny_of_the_test") continue;
      EXPECT_EQ(build_model(name, family_name(family), {.num_classes = 7}).name, name) << family_name(family);
    }
  }
}

}  // namespace
}  // namespace trainyard::models::model_table_test
