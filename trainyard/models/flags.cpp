#include "trainyard/models/flags.h"

#include <charconv>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::models {
namespace {

// Returns 0 for what is no number from 1 to kLongestImageSide.
int64_t parse_side(std::string_view text) {
  int64_t side = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), side);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && side >= 1 && side <= kLongestImageSide ? side : 0;
}

}  // namespace

nn::Size2d parse_image_size(std::string_view text) {
  const size_t by = text.find('x');
  const int64_t height = parse_side(text.substr(0, by));
  const int64_t width = by == std::string_view::npos ? height : parse_side(text.substr(by + 1));
  if (height > 0 && width > 0) return {height, width};
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "--image_size is no size of images",
                     .expected = fmt::format("N or HxW, as in 224 or 160x192, each 1 to {} pixels", kLongestImageSide),
                     .actual = std::string(text)});
}

void declare_image_size_flag(core::FlagTable& table, const char* group, const std::string& unset) {
  table
      .text("image_size", std::nullopt, "height and width of the images in pixels: N for both, or HxW; unset: " + unset)
      .group(group);
}

nn::Size2d read_image_size(const core::FlagValues& values) {
  if (!values.given("image_size")) return 0;
  return parse_image_size(values.text("image_size"));
}

void declare_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Model";
  table.text("model", "trivial", "the model; `trainyard models` lists them").group(kGroup);
  table
      .integer("num_classes", std::nullopt,
               "outputs of the model; unset: as many as the data name classes (class folders); where labels are "
               "numbers only, and in the dialect of tf_cnn_benchmarks for whole data sets, ImageNet 1001, CIFAR-10 11")
      .bounds(1, kMostClasses)
      .group(kGroup);
  declare_image_size_flag(table, kGroup, "the checkpoint's, else the model's own");
  table
      .boolean("auxiliary_heads", false,
               "train the auxiliary classifiers with which torchvision/googlenet (their losses count 0.3) and "
               "torchvision/inception_v3 (0.4) were published; evaluation and export leave them out")
      .group(kGroup);
  table
      .real("stochastic_depth", std::nullopt,
            "drop the branches of residual blocks in training, with a probability that rises linearly to this one of "
            "the last block; unset: the model's own")
      .bounds(0, 0.999)
      .group(kGroup);
  table
      .real("dropout", std::nullopt,
            "the probability with which all dropout layers of the model drop, or, where it has none, one in front of "
            "its last layer; unset: the model's own")
      .bounds(0, 0.999)
      .group(kGroup);
  table
      .real("batch_norm_decay", std::nullopt,
            "decay of the running statistics of all batch norms (1 less PyTorch's momentum); unset: the model's own")
      .bounds(0, 1)
      .group(kGroup);
  table
      .real("resnet_base_lr", std::nullopt,
            "tf_cnn_benchmarks' ResNets for ImageNet: rate of their own schedule at a batch of 256, instead of 0.128")
      .group(kGroup);
  table
      .text("backbone_model_path", std::nullopt,
            "with ssd300: checkpoint of TensorFlow's official ResNet-34, whose values the backbone begins with")
      .group(kGroup);
}

}  // namespace trainyard::models
