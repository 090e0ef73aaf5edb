// The registry of models: the models of each data set, how each is built, and its default training settings.
//
//   const ModelInfo& info = find_model("resnet20", "cifar10");
//   nn::Graph graph = build_model("resnet20", "cifar10", {.num_classes = 10});
//
// A model of your own, in one source file and nothing else:
//
//   const ModelRegistration kMine({.name = "mine", .family = DatasetFamily::kCifar10, .image_size = 32,
//                                  .build = [](const ModelOptions& options) { ... return builder.build(x); }});
#pragma once

#include <array>
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

// Data sets that share their models: imagenet and synthetic; cifar10 and shapes; coco.
enum class DatasetFamily { kImagenet, kCifar10, kCoco };
inline constexpr std::array<DatasetFamily, 3> kDatasetFamilies = {DatasetFamily::kImagenet, DatasetFamily::kCifar10,
                                                                  DatasetFamily::kCoco};

// Returns "imagenet", "cifar10" or "coco".
[[nodiscard]] std::string_view family_name(DatasetFamily family);

struct DatasetInfo {
  std::string_view name{};
  DatasetFamily family = DatasetFamily::kImagenet;
  int64_t benchmark_classes = 0;                        // as in tf_cnn_benchmarks: with a class 0 for the background
  int64_t num_classes = 0;                              // without the background
  int64_t train_examples = 0, validation_examples = 0;  // images of the whole data set
};

// Returns the data set called imagenet, synthetic, cifar10, shapes or coco. Throws kInvalidArgument, "Invalid dataset
// name: NAME", for others.
const DatasetInfo& find_dataset(std::string_view name);
std::vector<std::string> dataset_names();

// The most that a side of an image may have, in pixels.
inline constexpr int64_t kLongestImageSide = 16384;

struct ModelOptions {
  int64_t num_classes = 1000;
  nn::Size2d image_size = 0;  // pixels; 0: the model's own. build_model() replaces 0 before it calls a builder

  // Whether the graph has the auxiliary classifiers that the network was published with, as further outputs after the
  // logits: for training, which minimizes their losses, too.
  bool auxiliary_heads = false;

  // For training only: they replace the model's own rates (nn/graph/training_options.h describes them, and which models
  // get layers for them). stochastic_depth has the meaning of each family's publication: the rate of the last block of
  // torchvision's ConvNeXts and Swin transformers, of one block after the last one of its EfficientNets, of the last
  // cell of a NASNet.
  std::optional<double> stochastic_depth{}, dropout{}, batch_norm_decay{};

  // Returns the shape of one image, [3, height, width].
  [[nodiscard]] nn::Shape image_shape() const { return {3, image_size.height, image_size.width}; }
};

// Returns "160x192": height, then width, as in --image_size.
[[nodiscard]] std::string image_size_text(nn::Size2d size);

// The decay of a model's own learning rate, when the user gives none: epochs and factors of the first rate.
struct DefaultSchedule {
  double learning_rate = 0.005;
  int64_t batch_size = 0;  // batch size of the rate, which is scaled linearly with the global batch; 0: not scaled
  double warmup_epochs = 0;
  std::vector<double> boundary_epochs{};  // empty: constant
  // Instead of boundary_epochs: steps at batch_size. A batch k times as large reaches them in a k-th of the steps.
  std::vector<int64_t> boundary_steps{};
  std::vector<double> factors{};  // of learning_rate, one more than boundaries
  int64_t epoch_examples = 0;     // samples of the epochs above; 0: those of the training data
  // --resnet_base_lr replaces learning_rate, as in the models of tf_cnn_benchmarks' class ResnetModel.
  bool takes_resnet_base_lr = false;
};

// What a model's main output says of an image.
enum class Task {
  kClassification,  // logits [classes]
  // [D, 4 + classes], where D is the number of default boxes: four offsets of an object's box from its default box,
  // then the logits of all classes. Class 0 is the background.
  kDetection
};

struct ModelInfo {
  std::string name{};
  DatasetFamily family = DatasetFamily::kImagenet;
  Task task = Task::kClassification;
  std::string equals{};             // the same network in another library: "torchvision resnet18"; empty: none
  int64_t image_size = 224;         // default height and width
  int64_t image_size_multiple = 1;  // height and width must be multiples of it
  int64_t default_batch_size = 32;  // per device
  DefaultSchedule schedule{};
  // Prefixes of names in published weights that this network lacks: auxiliary classifiers, which are built with
  // ModelOptions::auxiliary_heads.
  std::vector<std::string> auxiliary{};
  std::function<nn::Graph(const ModelOptions&)> build{};
};

// Adds a model. Throws kInvalidArgument: `Model "NAME" is already registered for dataset "DATASET"`.
void register_model(ModelInfo info);

// Adds a model when the program starts, as a namespace-scope constant.
struct ModelRegistration {
  explicit ModelRegistration(ModelInfo info) { register_model(std::move(info)); }
};

// Finds a model by name and data set; the reference stays valid. "torchvision/<name>" finds torchvision's network, also
// when <name> alone is another one. Throws kInvalidArgument, "Invalid model name 'NAME' for dataset 'DATASET'", with
// the data set that has it, the nearest name, or those that begin with it; or find_dataset()'s error. Throws
// kUnsupported for models of tf_cnn_benchmarks whose input are no images.
const ModelInfo& find_model(const std::string& name, std::string_view dataset);
// Returns the first of "imagenet", "cifar10" and "coco" that has the model; imagenet where none has.
[[nodiscard]] std::string_view first_dataset_with(const std::string& model);
// Returns all names, sorted.
[[nodiscard]] std::vector<std::string> model_names(DatasetFamily family);

// Finds a model and builds its graph, whose name is the model's, whatever its builder calls it. Throws as find_model()
// does, and kInvalidArgument for options that the model does not support; for an image size it names the supported
// ones.
nn::Graph build_model(const std::string& name, std::string_view dataset, const ModelOptions& options);

// Returns the smallest side of a square image that the model supports, in pixels. Builds its graph a few times to find
// out.
[[nodiscard]] int64_t smallest_image_side(const ModelInfo& info);

}  // namespace trainyard::models
TRAINYARD_EXPORT_END
