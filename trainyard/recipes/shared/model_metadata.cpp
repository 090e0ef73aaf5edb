#include "trainyard/recipes/shared/model_metadata.h"

#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::recipes {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kModel = "trainyard.model";
constexpr const char* kDataset = "trainyard.dataset";
constexpr const char* kNumClasses = "trainyard.num_classes";
constexpr const char* kClasses = "trainyard.classes";
constexpr const char* kInput = "trainyard.input";
constexpr size_t kChannels = 3;

// Pixels outside of float32's precision would print digits that mean nothing.
double rounded(double value) {
  return std::stod(fmt::format("{:.7g}", value));
}

// How an image of any size becomes one of the model's, in words: for readers that have other transforms.
std::string resize_rule(const TrainedModel& trained) {
  const data::TransformOptions& input = trained.input;
  if (trained.identity.dataset != "imagenet") return "both sides to the model's, ignoring proportions";
  if (input.eval_central_part > 0) {
    return fmt::format("the centre, {:.6g} of both sides; then both sides to the model's, ignoring proportions",
                       input.eval_central_part);
  }
  if (input.eval_resize_size == 0) {
    return "both sides to 1.145 times the model's, ignoring proportions; then the centre";
  }
  return fmt::format("shorter side to {}; then the centre", input.eval_resize_size);
}

Json input_json(const TrainedModel& trained) {
  const data::TransformOptions& input = trained.input;
  Json json{{"height", input.height},
            {"width", input.width},
            {"layout", "NCHW"},
            {"channel_order", "RGB"},
            {"resize", resize_rule(trained)},
            {"resize_method", input.resize_method},
            {"resize_antialias", input.resize_antialias},
            {"resize_half_pixel_centers", input.resize_half_pixel_centers},
            {"eval_resize_size", input.eval_resize_size},
            {"eval_central_part", rounded(input.eval_central_part)}};
  for (size_t c = 0; c < kChannels; ++c) {
    const double scale = input.normalization.scale[c], shift = input.normalization.shift[c];
    json["mean"].push_back(rounded(-shift / scale));
    json["std"].push_back(rounded(1 / scale));
    json["scale"].push_back(scale);
    json["shift"].push_back(shift);
  }
  return json;
}

core::Error malformed(const std::string& path, const char* entry) {
  return {core::ErrorCode::kCorruptData,
          {.problem = "metadata of the model is malformed",
           .where = fmt::format("{}, {}", path, entry),
           .expected = "what trainyard export writes",
           .remedy = "export it again"}};
}

// Runs `read` on the entry's JSON, if there is one. What the reader cannot use is malformed.
template <typename Read>
void read_entry(const ModelMetadata& metadata, const std::string& path, const char* entry, Read read) {
  const auto found = metadata.find(entry);
  if (found == metadata.end()) return;
  try {
    read(Json::parse(found->second, [&](int depth, Json::parse_event_t, Json&) {
      if (depth > 4) throw malformed(path, entry);
      return true;
    }));
  } catch (const nlohmann::json::exception&) {
    throw malformed(path, entry);
  }
}

}  // namespace

ModelMetadata metadata_of(const TrainedModel& trained) {
  ModelMetadata metadata{{kModel, trained.identity.model},
                         {kDataset, trained.identity.dataset},
                         {kNumClasses, fmt::format("{}", trained.identity.num_classes)},
                         {kInput, input_json(trained).dump()}};
  if (!trained.classes.names.empty()) {
    const Json classes{{"first_output", trained.classes.first_output}, {"names", trained.classes.names}};
    metadata[kClasses] = classes.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return metadata;
}

train::CheckpointIdentity identity_in(const ModelMetadata& metadata, const std::string& path) {
  train::CheckpointIdentity identity;
  if (const auto found = metadata.find(kModel); found != metadata.end()) identity.model = found->second;
  if (const auto found = metadata.find(kDataset); found != metadata.end()) identity.dataset = found->second;
  read_entry(metadata, path, kNumClasses, [&](const Json& json) {
    identity.num_classes = json.get<int64_t>();
    if (!json.is_number_unsigned() || identity.num_classes < 1) throw malformed(path, kNumClasses);
  });
  return identity;
}

ClassNames classes_in(const ModelMetadata& metadata, const std::string& path) {
  ClassNames classes;
  read_entry(metadata, path, kClasses, [&](const Json& json) {
    classes.first_output = json.at("first_output").get<int64_t>();
    classes.names = json.at("names").get<std::vector<std::string>>();
    if (classes.first_output < 0 || classes.first_output > 1) throw malformed(path, kClasses);
  });
  return classes;
}

nn::Size2d image_size_in(const ModelMetadata& metadata, const std::string& path) {
  nn::Size2d size = 0;
  read_entry(metadata, path, kInput, [&](const Json& json) {
    size = {json.at("height").get<int64_t>(), json.at("width").get<int64_t>()};
    const auto fits = [](int64_t side) { return side >= 1 && side <= models::kLongestImageSide; };
    if (!fits(size.height) || !fits(size.width)) throw malformed(path, kInput);
  });
  return size;
}

void read_input(const ModelMetadata& metadata, const std::string& path, data::TransformOptions& input) {
  read_entry(metadata, path, kInput, [&](const Json& json) {
    input.resize_method = json.at("resize_method").get<std::string>();
    input.resize_antialias = json.at("resize_antialias").get<bool>();
    input.resize_half_pixel_centers = json.at("resize_half_pixel_centers").get<bool>();
    input.eval_resize_size = json.at("eval_resize_size").get<int64_t>();
    input.eval_central_part = json.value("eval_central_part", 0.0F);
    const auto scale = json.at("scale").get<std::array<float, kChannels>>();
    const auto shift = json.at("shift").get<std::array<float, kChannels>>();
    for (size_t c = 0; c < kChannels; ++c) {
      if (!std::isfinite(scale[c]) || scale[c] == 0 || !std::isfinite(shift[c])) throw malformed(path, kInput);
      input.normalization.scale[c] = scale[c];
      input.normalization.shift[c] = shift[c];
    }
  });
}

}  // namespace trainyard::recipes
