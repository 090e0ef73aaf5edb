#include "trainyard/models/registry/model_registry.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>

#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"

namespace trainyard::models {
namespace {

// Their indices, and what is counted of a head for them, are far from where numbers overflow.
constexpr int64_t kMaxClasses = (int64_t{1} << 31) - 1;

constexpr std::array<DatasetInfo, 4> kDatasets{{
    {"imagenet", DatasetFamily::kImagenet, 1001, 1000, 1281167, 50000},
    {"synthetic", DatasetFamily::kImagenet, 1001, 1000, 1281167, 50000},
    {"cifar10", DatasetFamily::kCifar10, 11, 10, 50000, 10000},
    {"shapes", DatasetFamily::kCifar10, 12, 12, 8000, 2000},
}};

struct Zoo {
  std::mutex mutex;
  std::map<std::pair<DatasetFamily, std::string>, ModelInfo> models;
};

Zoo& zoo() {
  static Zoo instance;
  return instance;
}

// What to do about a name that this family has not.
std::string unknown_model_remedy(const std::string& name, DatasetFamily family) {
  const DatasetFamily other = family == DatasetFamily::kImagenet ? DatasetFamily::kCifar10 : DatasetFamily::kImagenet;
  const std::vector<std::string> others = model_names(other);
  if (std::find(others.begin(), others.end(), name) != others.end()) {
    return fmt::format("{} is a model for {}: pass --data_name={}", name, family_name(other), family_name(other));
  }
  const std::vector<std::string> names = model_names(family);
  if (const std::string nearest = core::nearest_name(name, names); !nearest.empty()) {
    return fmt::format("did you mean '{}'?", nearest);
  }
  std::string longer;
  for (const std::string& known : names) {
    if (!name.empty() && known.starts_with(name)) longer += fmt::format("{}'{}'", longer.empty() ? "" : ", ", known);
  }
  return longer.empty() ? "`trainyard models` lists the models" : "did you mean one of " + longer + "?";
}

}  // namespace

std::string_view family_name(DatasetFamily family) {
  return family == DatasetFamily::kImagenet ? "imagenet" : "cifar10";
}

const DatasetInfo& find_dataset(std::string_view name) {
  for (const DatasetInfo& dataset : kDatasets) {
    if (dataset.name == name) return dataset;
  }
  const std::vector<std::string> known = dataset_names();
  const std::string nearest = core::nearest_name(name, known);
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("Invalid dataset name: {}", name),
                     .remedy = nearest.empty() ? fmt::format("known are imagenet, synthetic, cifar10 and shapes")
                                               : fmt::format("did you mean '{}'?", nearest)});
}

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const DatasetInfo& dataset : kDatasets) names.emplace_back(dataset.name);
  return names;
}

void register_model(ModelInfo info) {
  std::lock_guard lock(zoo().mutex);
  const auto key = std::pair(info.family, info.name);
  if (!zoo().models.emplace(key, std::move(info)).second) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = fmt::format("Model \"{}\" is already registered for dataset \"{}\"", key.second,
                                              family_name(key.first))});
  }
}

const ModelInfo& find_model(const std::string& name, std::string_view dataset) {
  const DatasetFamily family = find_dataset(dataset).family;
  {
    std::lock_guard lock(zoo().mutex);
    if (auto found = zoo().models.find({family, name}); found != zoo().models.end()) return found->second;
  }
  if (constexpr std::string_view kPrefix = "torchvision/"; name.starts_with(kPrefix)) {
    const std::string bare = name.substr(kPrefix.size());
    std::lock_guard lock(zoo().mutex);
    const auto found = zoo().models.find({family, bare});
    if (found != zoo().models.end() && found->second.equals == "torchvision " + bare) return found->second;
  }
  for (const std::string_view later : {"ssd300", "deepspeech2", "ncf"}) {
    if (name == later) {
      throw core::Error(core::ErrorCode::kUnsupported,
                        {.problem = fmt::format("model {} is outside what this project covers for now", name),
                         .remedy = "`trainyard models` lists the models"});
    }
  }
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("Invalid model name '{}' for dataset '{}'", name, dataset),
                     .remedy = unknown_model_remedy(name, family)});
}

std::vector<std::string> model_names(DatasetFamily family) {
  std::lock_guard lock(zoo().mutex);
  std::vector<std::string> names;
  for (const auto& [key, info] : zoo().models) {
    if (key.first == family) names.push_back(key.second);
  }
  return names;
}

nn::Graph build_model(const std::string& name, std::string_view dataset, const ModelOptions& options) {
  if (options.num_classes <= 0 || options.num_classes > kMaxClasses || options.image_size < 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a model needs at least one class and an image size that is not negative",
                       .where = name,
                       .expected = fmt::format("1 to {} classes", kMaxClasses),
                       .actual = fmt::format("{} classes, image size {}", options.num_classes, options.image_size)});
  }
  const ModelInfo& info = find_model(name, dataset);
  ModelOptions complete = options;
  if (complete.image_size == 0) complete.image_size = info.image_size;
  return info.build(complete);
}

}  // namespace trainyard::models
