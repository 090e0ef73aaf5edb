#include "trainyard/data/augment/transform.h"

namespace trainyard::data {
namespace {

const Normalization kStandardized = Normalization::standardized(kImagenetMean, kImagenetStandardDeviation);

TransformOptions official_models() {
  TransformOptions options;
  options.distortions = false;
  options.eval_resize_size = 256;
  options.resize_convention = ResizeConvention::kTensorflow;
  options.normalization = Normalization::minus_mean(kImagenetChannelMeans);
  return options;
}

// What the programs that crop as torchvision does have in common: OpenCV's, Pillow's and DALI's pixels have centres.
TransformOptions resized_crop(ResizeConvention convention, float min_area, float min_aspect_ratio,
                              float max_aspect_ratio, int max_attempts) {
  TransformOptions options;
  options.resize_convention = convention;
  options.resize_half_pixel_centers = true;
  options.resize_antialias = true;
  options.crop.method = CropMethod::kResizedCrop;
  options.crop.min_area = min_area;
  options.crop.min_aspect_ratio = min_aspect_ratio;
  options.crop.max_aspect_ratio = max_aspect_ratio;
  options.crop.max_attempts = max_attempts;
  options.distortions = false;
  options.eval_resize_size = 256;
  options.normalization = kStandardized;
  options.scaled_decode = true;
  return options;
}

TransformOptions dali() {
  TransformOptions options = resized_crop(ResizeConvention::kDali, 0.05F, 0.75F, 1.25F, 100);
  options.normalization = Normalization::standardized(kImagenetChannelMeans, {58.4F, 57.12F, 57.3F});
  return options;
}

TransformOptions resnet_n() {
  TransformOptions options;
  options.crop.min_area = 0.1F;
  options.crop.min_aspect_ratio = 0.8F;
  options.crop.max_aspect_ratio = 1.25F;
  options.use_boxes = false;
  options.eval_central_part = 0.8F;
  options.distortions = false;
  options.distort_color_in_yiq = false;
  options.alternate_color_order = false;
  options.normalization = {.scale = {1, 1, 1}, .shift = {0, 0, 0}};
  return options;
}

TransformOptions tensorpack() {
  TransformOptions options = resized_crop(ResizeConvention::kOpencv, 0.08F, 0.75F, 1.333F, 10);
  options.resize_method = "bicubic";
  options.resize_antialias = false;
  return options;
}

}  // namespace

InputPresetRegistry& input_presets() {
  static InputPresetRegistry* presets = [] {
    auto* registry = new InputPresetRegistry("input preprocessor");  // never destroyed
    registry->add("default", {});
    registry->add("official_models_imagenet", official_models());
    registry->add("dali", dali());
    registry->add("paddle", resized_crop(ResizeConvention::kDali, 0.08F, 3.0F / 4, 4.0F / 3, 100));
    registry->add("resnet_n", resnet_n());
    registry->add("tensorpack", tensorpack());
    registry->add("torchvision", resized_crop(ResizeConvention::kTorchvision, 0.08F, 3.0F / 4, 4.0F / 3, 10));
    return registry;
  }();
  return *presets;
}

}  // namespace trainyard::data
