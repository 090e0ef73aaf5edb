#include "trainyard/frontends/model/published_input.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::frontends {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kTorchvision = "torchvision ";
constexpr const char* kTorchvisionPreset = "torchvision";
constexpr uint64_t kLargestConfig = uint64_t{1} << 20;  // bytes
constexpr float kPixels = 255;                          // torchvision and timm count from 0 to 1

// torchvision's transforms() of one file of weights: the shorter side to `resize`, then the centre of `crop`.
struct Published {
  std::string_view model{};
  std::string_view file{};  // a part of the file's name that no other one has; empty: IMAGENET1K_V1
  int64_t crop = 224, resize = 256;
  bool bicubic = false;
  bool symmetric = false;  // pixel / 127.5 - 1 instead of ImageNet's mean and deviation
};

// Those that are not resized to 256, cut to 224, bilinear, with ImageNet's mean and deviation. Checked against
// torchvision itself by published_input_test.cpp.
constexpr Published kPublished[] = {
    {.model = "convnext_base", .resize = 232},
    {.model = "convnext_small", .resize = 230},
    {.model = "convnext_tiny", .resize = 236},
    {.model = "efficientnet_b0", .bicubic = true},
    {.model = "efficientnet_b1", .crop = 240, .bicubic = true},
    {.model = "efficientnet_b1", .file = "c27df63c", .crop = 240, .resize = 255},
    {.model = "efficientnet_b2", .crop = 288, .resize = 288, .bicubic = true},
    {.model = "efficientnet_b3", .crop = 300, .resize = 320, .bicubic = true},
    {.model = "efficientnet_b4", .crop = 380, .resize = 384, .bicubic = true},
    {.model = "efficientnet_v2_s", .crop = 384, .resize = 384},
    // Both have transform_input there, which turns torchvision's numbers into pixel / 127.5 - 1.
    {.model = "googlenet", .symmetric = true},
    {.model = "inception_v3", .crop = 299, .resize = 342, .symmetric = true},
    {.model = "mobilenet_v2", .file = "7ebf99e0", .resize = 232},
    {.model = "mobilenet_v3_large", .file = "5c1a4163", .resize = 232},
    {.model = "regnet_y_1_6gf", .file = "0d7bc02a", .resize = 232},
    {.model = "regnet_y_400mf", .file = "e6988f5f", .resize = 232},
    {.model = "resnet101", .file = "cd907fc2", .resize = 232},
    {.model = "resnet152", .file = "f82ba261", .resize = 232},
    {.model = "resnet50", .file = "11ad3fa6", .resize = 232},
    {.model = "resnext50_32x4d", .file = "1a0047aa", .resize = 232},
    {.model = "swin_t", .resize = 232, .bicubic = true},
    {.model = "vit_b_16", .file = "9ac1b537", .crop = 384, .resize = 384, .bicubic = true},
    {.model = "vit_b_16", .file = "4e70ced5", .resize = 224, .bicubic = true},
    {.model = "wide_resnet50_2", .file = "9ba9bcbe", .resize = 232},
};

Published published_of(std::string_view network, const std::string& weights_path) {
  const std::string file = core::base_name(weights_path);
  Published found{.model = network};
  for (const Published& each : kPublished) {
    if (each.model != network) continue;
    if (each.file.empty()) {
      found = each;
    } else if (file.find(each.file) != std::string::npos) {
      return each;
    }
  }
  return found;
}

// Evaluation as Pillow does it: pixels have centres, all that lie under a shrunk one count, JPEGs at their full size.
data::TransformOptions pillow_input(nn::Size2d size, const std::string& method) {
  data::TransformOptions input;
  input.training = false;
  input.height = size.height;
  input.width = size.width;
  input.resize_method = method;
  input.resize_half_pixel_centers = true;
  input.resize_antialias = true;
  input.resize_convention = data::ResizeConvention::kTorchvision;
  input.exif_orientation = true;  // as in all of our commands
  return input;
}

// The GeneralizedRCNNTransform of torchvision's ssd300_vgg16: the whole image to 300 x 300 by linear interpolation, the
// pixels minus a mean.
PublishedInput torchvision_ssd_input(const models::ModelInfo& model) {
  constexpr data::Rgb kMean = {0.48235F * kPixels, 0.45882F * kPixels, 0.40784F * kPixels};
  PublishedInput trained;
  trained.input.training = false;
  trained.input.set_size(model.image_size, model.image_size);
  trained.input.resize_method = "bilinear";
  trained.input.resize_half_pixel_centers = true;
  trained.input.normalization = data::Normalization::minus_mean(kMean);
  trained.choice = fmt::format(
      "images are made as torchvision makes them for its weights of {}: all of the image to {}x{}, pixels minus a mean",
      model.name, model.image_size, model.image_size);
  return trained;
}

std::string rule_of(const data::TransformOptions& input) {
  return fmt::format("shorter side to {}, {}, the centre of {}", input.eval_resize_size, input.resize_method,
                     models::image_size_text({input.height, input.width}));
}

[[noreturn]] void malformed(const std::string& path, const std::string& member, const std::string& expected,
                            const std::string& actual) {
  throw core::Error(core::ErrorCode::kCorruptData,
                    {.problem = "timm's config.json cannot be used",
                     .where = fmt::format("{}, {}", path, member),
                     .expected = expected,
                     .actual = actual,
                     .remedy = "correct it, or move it elsewhere and say by flags how images become input"});
}

data::Rgb three_numbers(const std::string& path, const Json& config, const char* member, data::Rgb otherwise) {
  const auto found = config.find(member);
  if (found == config.end() || found->is_null()) return otherwise;
  data::Rgb numbers{};
  bool good = found->is_array() && found->size() == numbers.size();
  for (size_t c = 0; good && c < numbers.size(); ++c) {
    good = (*found)[c].is_number() && std::abs((*found)[c].get<double>()) <= kPixels;
    if (good) numbers[c] = (*found)[c].get<float>();
  }
  if (!good) malformed(path, member, "three numbers", found->dump().substr(0, 80));
  return numbers;
}

nn::Size2d input_size(const std::string& path, const Json& config) {
  const auto found = config.find("input_size");
  if (found == config.end() || found->is_null()) return 224;
  const auto is_side = [](const Json& json) {
    return json.is_number_unsigned() && json.get<uint64_t>() >= 1 &&
           json.get<uint64_t>() <= static_cast<uint64_t>(models::kLongestImageSide);
  };
  const bool good =
      found->is_array() && found->size() == 3 && (*found)[0] == 3 && is_side((*found)[1]) && is_side((*found)[2]);
  if (!good) {
    malformed(path, "input_size", fmt::format("[3, height, width], sides up to {}", models::kLongestImageSide),
              found->dump().substr(0, 80));
  }
  return {(*found)[1].get<int64_t>(), (*found)[2].get<int64_t>()};
}

std::string text_of(const std::string& path, const Json& config, const char* member, const std::string& otherwise) {
  const auto found = config.find(member);
  if (found == config.end() || found->is_null()) return otherwise;
  if (!found->is_string()) malformed(path, member, "a text", found->dump().substr(0, 80));
  return found->get<std::string>();
}

// timm's resolve_data_config() and transforms_imagenet_eval(), with timm's defaults.
PublishedInput timm_input(const std::string& path, const Json& config) {
  const nn::Size2d size = input_size(path, config);
  const std::string method = text_of(path, config, "interpolation", "bicubic");
  constexpr std::array<std::string_view, 3> kMethods = {"bilinear", "bicubic", "nearest"};
  if (std::find(kMethods.begin(), kMethods.end(), method) == kMethods.end()) {
    malformed(path, "interpolation", "bilinear, bicubic or nearest", method);
  }
  PublishedInput trained{.input = pillow_input(size, method), .preprocessor = kTorchvisionPreset};
  const auto found = config.find("crop_pct");
  const double part = found == config.end() || found->is_null() ? 0.875 : found->is_number() ? found->get<double>() : 0;
  if (!(part > 0 && part <= 1)) malformed(path, "crop_pct", "a number above 0, at most 1", found->dump().substr(0, 80));
  const double resized = std::floor(static_cast<double>(std::max(size.height, size.width)) / part);
  if (resized > static_cast<double>(train::kLongestResize)) {
    malformed(path, "crop_pct",
              fmt::format("a part by which the resized side is at most {} pixels", train::kLongestResize),
              found->dump().substr(0, 80));
  }
  const std::string mode = text_of(path, config, "crop_mode", "center");
  if (mode == "squash") {
    trained.input.eval_central_part = static_cast<float>(part);
  } else if (mode == "center") {
    trained.input.eval_resize_size = static_cast<int64_t>(resized);
  } else {
    malformed(path, "crop_mode", "center or squash", mode);
  }
  data::Rgb mean = three_numbers(path, config, "mean", {0.485F, 0.456F, 0.406F});
  data::Rgb deviation = three_numbers(path, config, "std", {0.229F, 0.224F, 0.225F});
  if (std::any_of(deviation.begin(), deviation.end(), [](float each) { return each < 1e-6F; })) {
    malformed(path, "std", "numbers above 0", config.at("std").dump().substr(0, 80));
  }
  for (size_t c = 0; c < mean.size(); ++c) {
    mean[c] *= kPixels;
    deviation[c] *= kPixels;
  }
  trained.input.normalization = data::Normalization::standardized(mean, deviation);
  trained.choice = fmt::format(
      "images are made as timm's {} says: {}", path,
      mode == "squash" ? fmt::format("the centre, {:.4g} of both sides, {}", part, method) : rule_of(trained.input));
  return trained;
}

// Returns the model here whose parameters are those of timm's `architecture`: torchvision's of the same name.
std::string model_of_timm(const std::string& architecture) {
  constexpr std::array<std::string_view, 15> kSame = {
      "resnet18",        "resnet34",         "resnet50",         "resnet101",       "resnet152",
      "resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2",
      "densenet121",     "densenet161",      "densenet169",      "densenet201",     "inception_v3"};
  const std::string name = architecture.substr(0, architecture.find('.'));
  if (std::find(kSame.begin(), kSame.end(), name) == kSame.end()) return {};
  return "torchvision/" + name;
}

}  // namespace

std::optional<TimmConfig> read_timm_config(const std::string& weights_path) {
  core::FileSystem& files = core::local_file_system();
  TimmConfig timm;
  timm.path = core::join_path(core::parent_path(weights_path), "config.json");
  if (!files.exists(timm.path) || files.info(timm.path).is_directory) return std::nullopt;
  Json config;
  std::string text;
  try {
    text = files.read_file(timm.path, kLargestConfig);
    config = Json::parse(text, [](int depth, Json::parse_event_t, Json&) {
      if (depth > 16) throw core::Error(core::ErrorCode::kCorruptData, "nested too deeply");
      return true;
    });
  } catch (const Json::exception& error) {
    if (text.find("\"pretrained_cfg\"") == std::string::npos) return std::nullopt;  // some other program's
    malformed(timm.path, "its text", "JSON, in which numbers are finite", std::string(error.what()).substr(0, 200));
  } catch (const core::Error& error) {
    if (error.code() != core::ErrorCode::kCorruptData) throw;
    return std::nullopt;
  }
  if (!config.is_object() || !config.contains("pretrained_cfg") || !config["pretrained_cfg"].is_object()) {
    return std::nullopt;
  }
  timm.model = model_of_timm(text_of(timm.path, config, "architecture", ""));
  if (const auto count = config.find("num_classes"); count != config.end() && !count->is_null()) {
    if (!count->is_number_unsigned() || count->get<uint64_t>() < 1 || count->get<uint64_t>() > (uint64_t{1} << 24)) {
      malformed(timm.path, "num_classes", "a number from 1 on", count->dump().substr(0, 80));
    }
    timm.num_classes = count->get<int64_t>();
  }
  timm.input = timm_input(timm.path, config["pretrained_cfg"]);
  return timm;
}

std::optional<PublishedInput> torchvision_input(const std::string& weights_path, const models::ModelInfo& model) {
  if (!model.equals.starts_with(kTorchvision)) return std::nullopt;
  if (model.task == models::Task::kDetection) return torchvision_ssd_input(model);
  const std::string network = model.equals.substr(kTorchvision.size());
  const Published published = published_of(network, weights_path);
  PublishedInput trained{.input = pillow_input(published.crop, published.bicubic ? "bicubic" : "bilinear"),
                         .preprocessor = kTorchvisionPreset};
  trained.input.eval_resize_size = published.resize;
  trained.input.normalization =
      published.symmetric ? data::Normalization::symmetric()
                          : data::Normalization::standardized(data::kImagenetMean, data::kImagenetStandardDeviation);
  trained.choice = fmt::format(
      "images are made as torchvision makes them for its weights of {}: {}, {}; flags such as --input_preprocessor, "
      "--eval_resize_size and --normalization choose otherwise",
      network, rule_of(trained.input),
      published.symmetric ? "pixels from -1 to 1" : "ImageNet's mean and standard deviation");
  return trained;
}

}  // namespace trainyard::frontends
