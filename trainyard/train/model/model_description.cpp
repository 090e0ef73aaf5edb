#include "trainyard/train/model/model_description.h"

#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/image/resize_convention.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/graph/graph_json.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kModel = "trainyard.model";
constexpr const char* kDataset = "trainyard.dataset";
constexpr const char* kNumClasses = "trainyard.num_classes";
constexpr const char* kClassesKey = "trainyard.classes";
constexpr const char* kInput = "trainyard.input";
constexpr const char* kGraph = "trainyard.graph";
constexpr const char* kLayout = "NCHW";
constexpr const char* kChannelOrder = "RGB";
constexpr const char* kSavedBehind = "description/";
constexpr const char* kBoxed = "coco";  // the transform of images with boxes
constexpr size_t kChannelCount = 3;
constexpr const char* kEvaluationScale = "1.145";  // of data::ImagenetSampling

// Pixels outside of float32's precision would print digits that mean nothing.
double rounded(double value) {
  return std::stod(fmt::format("{:.7g}", value));
}

// How an image of any size becomes one of the model's: the names that docs/formats/model_metadata.md gives the rules,
// and the rule in words, for readers that have other transforms.
struct ResizeRule {
  const char* name;
  std::string words;
};

ResizeRule resize_rule(const ModelDescription& description) {
  const data::TransformOptions& input = *description.input;
  if (description.transform == kBoxed) return {"whole", "both sides to the model's, ignoring proportions"};
  if (description.transform != "imagenet") {
    return {"stretched", "both sides to the model's, ignoring proportions, rounded to whole pixel values"};
  }
  if (input.resize_method == "crop") {
    return {"centre", "nothing is scaled: the centre, with zeros around an image that is smaller"};
  }
  if (input.eval_central_part > 0) {
    return {"central_part",
            fmt::format("the centre, {:.6g} of both sides; then both sides to the model's, ignoring proportions",
                        input.eval_central_part)};
  }
  if (input.eval_resize_size == 0) {
    return {"scaled_centre",
            fmt::format("scaled, proportions kept, until both sides are at least {} times the model's; "
                        "then the centre",
                        kEvaluationScale)};
  }
  return {"scaled_centre", fmt::format("shorter side to {}, proportions kept; then the centre; rounding as {}",
                                       input.eval_resize_size, data::resize_convention_name(input.resize_convention))};
}

Json input_json(const ModelDescription& description) {
  const data::TransformOptions& input = *description.input;
  const ResizeRule rule = resize_rule(description);
  // The transform of small images has one way of scaling them, whatever the options say, and images with boxes are
  // never turned. Where nothing is scaled, or small images are, JPEGs are decoded at their full size.
  const bool boxed = description.transform == kBoxed;
  const bool any_size = description.transform == "imagenet" || boxed;
  Json json{{"height", input.height},
            {"width", input.width},
            {"layout", kLayout},
            {"channel_order", kChannelOrder},
            {"resize", rule.words},
            {"eval_rule", rule.name},
            {"resize_method", any_size ? input.resize_method : "bilinear"},
            {"resize_antialias", input.resize_antialias || !any_size},
            {"resize_half_pixel_centers", input.resize_half_pixel_centers || !any_size},
            {"resize_convention", data::resize_convention_name(input.resize_convention)},
            {"eval_resize_size", input.eval_resize_size},
            {"eval_central_part", rounded(input.eval_central_part)},
            {"scaled_decode", input.eval_scaled_decode && any_size && input.resize_method != "crop"},
            {"exif_orientation", input.exif_orientation && !boxed}};
  if (!description.preprocessor.empty()) json["input_preprocessor"] = description.preprocessor;
  for (size_t c = 0; c < kChannelCount; ++c) {
    const double scale = input.normalization.scale[c], shift = input.normalization.shift[c];
    json["mean"].push_back(rounded(-shift / scale));
    json["std"].push_back(rounded(1 / scale));
    json["scale"].push_back(scale);
    json["shift"].push_back(shift);
  }
  return json;
}

core::Error malformed(const std::string& where, const char* entry) {
  return {core::ErrorCode::kCorruptData,
          {.problem = "metadata of the model is malformed",
           .where = fmt::format("{}, {}", where, entry),
           .expected = "what trainyard export writes",
           .remedy = "export it again"}};
}

// Runs `read` on the entry's JSON, if there is one. What the reader cannot use is malformed.
template <typename Read>
void read_entry(const ModelMetadata& metadata, const std::string& where, const char* entry, Read read) {
  const auto found = metadata.find(entry);
  if (found == metadata.end()) return;
  try {
    read(Json::parse(found->second, [&](int depth, Json::parse_event_t, Json&) {
      if (depth > 4) throw malformed(where, entry);
      return true;
    }));
  } catch (const nlohmann::json::exception&) {
    throw malformed(where, entry);
  }
}

// Throws kUnsupported where the field has another value than `only`, in which a model here takes its input.
void require_only(const Json& json, const std::string& where, const char* field, const std::string& only) {
  const std::string actual = json.value(field, only);
  if (actual == only) return;
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = fmt::format("the model takes images of another {} than models here do", field),
                     .where = fmt::format("{}, {}", where, kInput),
                     .expected = only,
                     .actual = actual,
                     .remedy = "change the model, and what its file says, to the expected one"});
}

void read_input(const Json& json, const std::string& where, ModelDescription& description) {
  require_only(json, where, "layout", kLayout);
  require_only(json, where, "channel_order", kChannelOrder);
  data::TransformOptions input{.training = false};
  input.height = json.at("height").get<int64_t>();
  input.width = json.at("width").get<int64_t>();
  const auto fits = [](int64_t side) { return side >= 1 && side <= models::kLongestImageSide; };
  if (!fits(input.height) || !fits(input.width)) throw malformed(where, kInput);
  input.resize_method = json.at("resize_method").get<std::string>();
  input.resize_antialias = json.at("resize_antialias").get<bool>();
  input.resize_half_pixel_centers = json.at("resize_half_pixel_centers").get<bool>();
  input.eval_resize_size = json.at("eval_resize_size").get<int64_t>();
  input.eval_central_part = json.value("eval_central_part", 0.0F);
  if (input.eval_resize_size < 0 || input.eval_resize_size > kLongestResize) throw malformed(where, kInput);
  try {
    input.resize_convention = data::resize_convention(json.value("resize_convention", "plain"));
  } catch (const core::Error&) {
    throw malformed(where, kInput);
  }
  input.scaled_decode = input.eval_scaled_decode = json.value("scaled_decode", false);
  input.exif_orientation = json.value("exif_orientation", false);
  description.preprocessor = json.value("input_preprocessor", "");
  const auto scale = json.at("scale").get<std::array<float, kChannelCount>>();
  const auto shift = json.at("shift").get<std::array<float, kChannelCount>>();
  for (size_t c = 0; c < kChannelCount; ++c) {
    if (!std::isfinite(scale[c]) || scale[c] == 0 || !std::isfinite(shift[c])) throw malformed(where, kInput);
    input.normalization.scale[c] = scale[c];
    input.normalization.shift[c] = shift[c];
  }
  if (!description.preprocessor.empty() && !data::input_presets().has(description.preprocessor)) {
    throw malformed(where, kInput);
  }
  try {
    input.validate();
  } catch (const core::Error&) {  // which names no file
    throw malformed(where, kInput);
  }
  description.input = std::move(input);
}

}  // namespace

const std::string& ModelDescription::class_name(int64_t output) const {
  static const std::string none;
  const int64_t index = output - first_output;
  return index >= 0 && index < std::ssize(classes) ? classes[static_cast<size_t>(index)] : none;
}

ModelMetadata metadata_of(const ModelDescription& description) {
  ModelMetadata metadata{{kModel, description.name}};
  if (!description.transform.empty()) metadata[kDataset] = description.transform;
  if (description.num_classes > 0) metadata[kNumClasses] = fmt::format("{}", description.num_classes);
  if (description.input && !description.transform.empty()) metadata[kInput] = input_json(description).dump();
  if (!description.classes.empty() || description.label_sets) {
    Json classes{{"first_output", description.first_output}, {"names", description.classes}};
    if (description.label_sets) classes["label_sets"] = true;
    if (description.classes_of_records) classes["of_records"] = true;
    metadata[kClassesKey] = classes.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  if (description.graph) metadata[kGraph] = nn::graph_json(*description.graph);
  return metadata;
}

ModelDescription described_in(const ModelMetadata& metadata, const std::string& where) {
  ModelDescription description;
  if (const auto found = metadata.find(kModel); found != metadata.end()) description.name = found->second;
  if (const auto found = metadata.find(kDataset); found != metadata.end()) description.transform = found->second;
  read_entry(metadata, where, kNumClasses, [&](const Json& json) {
    description.num_classes = json.get<int64_t>();
    const bool fits = description.num_classes >= 1 && description.num_classes <= kMostOutputs;
    if (!json.is_number_unsigned() || !fits) throw malformed(where, kNumClasses);
  });
  read_entry(metadata, where, kClassesKey, [&](const Json& json) {
    description.first_output = json.at("first_output").get<int64_t>();
    description.classes = json.at("names").get<std::vector<std::string>>();
    description.label_sets = json.value("label_sets", false);
    description.classes_of_records = json.value("of_records", false);
    if (description.first_output < 0 || description.first_output > 1) throw malformed(where, kClassesKey);
    const int64_t needed = std::ssize(description.classes) + description.first_output;
    if (description.num_classes > 0 && needed > description.num_classes) throw malformed(where, kClassesKey);
  });
  read_entry(metadata, where, kInput, [&](const Json& json) { read_input(json, where, description); });
  if (const auto found = metadata.find(kGraph); found != metadata.end()) {
    description.graph = nn::parse_graph_json(found->second, where);
  }
  return description;
}

nn::Size2d image_size_in(const ModelMetadata& metadata, const std::string& where) {
  ModelDescription description;
  read_entry(metadata, where, kInput, [&](const Json& json) { read_input(json, where, description); });
  return description.input ? nn::Size2d(description.input->height, description.input->width) : nn::Size2d(0);
}

void save_metadata(const ModelMetadata& metadata, core::StateWriter& writer) {
  for (const auto& [name, text] : metadata) writer.text(kSavedBehind + name, text);
}

ModelMetadata saved_metadata(const core::StateReader& reader) {
  ModelMetadata metadata;
  for (const std::string& name : reader.names(kSavedBehind)) {
    metadata[name.substr(std::string_view(kSavedBehind).size())] = reader.text(name);
  }
  return metadata;
}

}  // namespace trainyard::train
