// The zoo: which models there are for which data sets, how each is built, and what it is trained with by default.
//
//   const ModelInfo& info = find_model("resnet20", "cifar10");
//   nn::Graph graph = build_model("resnet20", "cifar10", {.num_classes = 10});
//
// A model of your own, in one source file and nothing else:
//
//   const ModelRegistration kMine({.name = "mine", .family = DatasetFamily::kCifar10, .image_size = 32,
//                                  .build = [](const ModelOptions& options) { ... return builder.build(x); }});
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/graph/graph.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::models {

// Data sets that share their models: imagenet and synthetic; cifar10 and shapes.
enum class DatasetFamily { kImagenet, kCifar10 };

// Returns "imagenet" or "cifar10".
[[nodiscard]] std::string_view family_name(DatasetFamily family);

struct DatasetInfo {
  std::string_view name{};
  DatasetFamily family = DatasetFamily::kImagenet;
  int64_t benchmark_classes = 0;  // as tf_cnn_benchmarks counts them: with a class 0 for the background
  int64_t num_classes = 0;        // without
  int64_t train_examples = 0, validation_examples = 0;  // of the whole data set
};

// Returns the data set called imagenet, synthetic, cifar10 or shapes. Throws kInvalidArgument, "Invalid dataset name:
// NAME", for others.
const DatasetInfo& find_dataset(std::string_view name);
std::vector<std::string> dataset_names();

// The most that a side of an image may have, in pixels.
inline constexpr int64_t kLongestImageSide = 16384;

struct ModelOptions {
  int64_t num_classes = 1000;
  nn::Size2d image_size = 0;  // pixels; 0: the model's own. Builders get one that is not 0: call build_model()

  // Whether the graph has the auxiliary classifiers that the network was published with, as outputs behind the logits:
  // for training, which lowers their losses, too.
  bool auxiliary_heads = false;

  // For training alone: in place of the model's own (nn/graph/training_options.h says what they do, and which models
  // get layers for them). stochastic_depth is what the families that have such layers are published with: the rate of
  // the last block of torchvision's ConvNeXts and Swin transformers, of its EfficientNets that of one block more, of
  // the last cell of a NASNet.
  std::optional<double> stochastic_depth{}, dropout{}, batch_norm_decay{};

  // Returns the shape of one image, [3, height, width].
  [[nodiscard]] nn::Shape image_shape() const { return {3, image_size.height, image_size.width}; }
};

// Returns "160x192": height, then width, as --image_size takes them.
[[nodiscard]] std::string image_size_text(nn::Size2d size);

// How a model's own learning rate falls, where the user gives none: epochs and factors of the first rate.
struct DefaultSchedule {
  double learning_rate = 0.005;
  int64_t batch_size = 0;  // that the rate is for, scaled linearly with the global batch; 0: any, not scaled
  double warmup_epochs = 0;
  std::vector<double> boundary_epochs{};  // empty: constant
  std::vector<double> factors{};          // of learning_rate, one more than boundaries
};

struct ModelInfo {
  std::string name{};
  DatasetFamily family = DatasetFamily::kImagenet;
  std::string equals{};             // the network elsewhere that this is: "torchvision resnet18"; empty: none
  int64_t image_size = 224;         // height and width where the options name none
  int64_t image_size_multiple = 1;  // what height and width must be multiples of
  int64_t default_batch_size = 32;  // per device
  DefaultSchedule schedule{};
  // How names begin of what published weights have beside this network: auxiliary classifiers, which are built where
  // ModelOptions::auxiliary_heads asks for them.
  std::vector<std::string> auxiliary{};
  std::function<nn::Graph(const ModelOptions&)> build{};
};

// Adds a model. Throws kInvalidArgument: `Model "NAME" is already registered for dataset "DATASET"`.
void register_model(ModelInfo info);

// Adds a model when the program starts, as a namespace-scope constant.
struct ModelRegistration {
  explicit ModelRegistration(ModelInfo info) { register_model(std::move(info)); }
};

// Finds a model by name and data set; the reference stays valid. "torchvision/<name>" finds torchvision's network
// whether or not <name> alone does. Throws kInvalidArgument, "Invalid model name 'NAME' for dataset 'DATASET'", with
// the data set that has it, the nearest name, or those that begin with it; or find_dataset()'s error. Throws
// kUnsupported for models of tf_cnn_benchmarks that classify no images.
const ModelInfo& find_model(const std::string& name, std::string_view dataset);
// Returns all names, sorted.
[[nodiscard]] std::vector<std::string> model_names(DatasetFamily family);

// Finds a model and builds its graph. Throws as find_model() does, and kInvalidArgument for options that the model
// cannot have; for an image size it names those that the model can have.
nn::Graph build_model(const std::string& name, std::string_view dataset, const ModelOptions& options);

// Returns the smallest height and width of a square image that the model can have, in pixels. Builds its graph a few
// times to find out.
[[nodiscard]] int64_t smallest_image_side(const ModelInfo& info);

}  // namespace trainyard::models
TRAINYARD_EXPORT_END
