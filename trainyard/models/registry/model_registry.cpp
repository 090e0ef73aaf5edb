#include "trainyard/models/registry/model_registry.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>

#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/nn/graph/training_options.h"

namespace trainyard::models {
namespace {

// Their indices, and what is counted of a head for them, are far from where numbers overflow.
constexpr int64_t kMaxClasses = (int64_t{1} << 31) - 1;

constexpr std::array<DatasetInfo, 5> kDatasets{{
    {"imagenet", DatasetFamily::kImagenet, 1001, 1000, 1281167, 50000},
    {"synthetic", DatasetFamily::kImagenet, 1001, 1000, 1281167, 50000},
    {"cifar10", DatasetFamily::kCifar10, 11, 10, 50000, 10000},
    {"shapes", DatasetFamily::kCifar10, 12, 12, 8000, 2000},
    {"coco", DatasetFamily::kCoco, 81, 80, 118287, 4952},
}};

struct Zoo {
  std::mutex mutex;
  std::map<std::pair<DatasetFamily, std::string>, ModelInfo> models;
};

Zoo& zoo() {
  static Zoo instance;
  return instance;
}

// Returns null where the family has no model of that name.
const ModelInfo* find_in_family(const std::string& name, DatasetFamily family) {
  std::lock_guard lock(zoo().mutex);
  const auto& models = zoo().models;
  if (const auto found = models.find({family, name}); found != models.end()) return &found->second;
  constexpr std::string_view kPrefix = "torchvision/";
  if (!name.starts_with(kPrefix)) return nullptr;
  const std::string bare = name.substr(kPrefix.size());
  const auto found = models.find({family, bare});
  return found != models.end() && found->second.equals == "torchvision " + bare ? &found->second : nullptr;
}

// What to do about a name that this family has not.
std::string unknown_model_remedy(const std::string& name, DatasetFamily family) {
  for (const DatasetFamily other : kDatasetFamilies) {
    if (other == family || find_in_family(name, other) == nullptr) continue;
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

bool builds_at(const ModelInfo& info, int64_t side) try {
  info.build({.num_classes = 1, .image_size = side});
  return true;
} catch (const core::Error& error) {
  if (error.code() != core::ErrorCode::kInvalidArgument) throw;
  return false;
}

core::Error refused_size(const ModelInfo& info, nn::Size2d size, std::string expected) {
  return {core::ErrorCode::kInvalidArgument,
          {.problem = fmt::format("model {} cannot have images of {}", info.name, image_size_text(size)),
           .expected = std::move(expected),
           .remedy = fmt::format("pass another --image_size; without it, the model's own is {}",
                                 image_size_text(info.image_size))}};
}

void check_image_size(const ModelInfo& info, nn::Size2d size) {
  const auto fits = [](int64_t side) { return side >= 1 && side <= kLongestImageSide; };
  if (!fits(size.height) || !fits(size.width)) {
    throw refused_size(info, size, fmt::format("height and width of 1 to {} pixels", kLongestImageSide));
  }
  const int64_t multiple = info.image_size_multiple;
  if (size.height % multiple == 0 && size.width % multiple == 0) return;
  throw refused_size(info, size, fmt::format("height and width that are multiples of {}", multiple));
}

// Applies what concerns training alone.
nn::Graph with_training_options(nn::Graph graph, const ModelOptions& options) {
  const bool has_depth = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const nn::Node& node) {
    return std::holds_alternative<nn::StochasticDepth>(node.op);
  });
  if (options.stochastic_depth.value_or(0) != 0 && !has_depth)
    graph = nn::with_stochastic_depth(graph, *options.stochastic_depth);
  if (options.dropout) graph = nn::with_dropout(graph, *options.dropout);
  if (options.batch_norm_decay) graph = nn::with_batch_norm_decay(graph, *options.batch_norm_decay);
  return graph;
}

}  // namespace

std::string image_size_text(nn::Size2d size) {
  return fmt::format("{}x{}", size.height, size.width);
}

int64_t smallest_image_side(const ModelInfo& info) {
  // In multiples; what is larger than a size that a model can have, the model can have, too.
  int64_t too_small = 0, enough = info.image_size / info.image_size_multiple;
  while (enough - too_small > 1) {
    const int64_t middle = (too_small + enough) / 2;
    (builds_at(info, middle * info.image_size_multiple) ? enough : too_small) = middle;
  }
  return enough * info.image_size_multiple;
}

std::string_view family_name(DatasetFamily family) {
  switch (family) {
    case DatasetFamily::kCifar10:
      return "cifar10";
    case DatasetFamily::kCoco:
      return "coco";
    case DatasetFamily::kImagenet:
      break;
  }
  return "imagenet";
}

const DatasetInfo& find_dataset(std::string_view name) {
  for (const DatasetInfo& dataset : kDatasets) {
    if (dataset.name == name) return dataset;
  }
  const std::vector<std::string> known = dataset_names();
  const std::string nearest = core::nearest_name(name, known);
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("Invalid dataset name: {}", name),
                     .remedy = nearest.empty() ? fmt::format("known are imagenet, synthetic, cifar10, shapes and coco")
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
  if (const ModelInfo* const found = find_in_family(name, family)) return *found;
  for (const std::string_view later : {"deepspeech2", "ncf"}) {
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

std::string_view first_dataset_with(const std::string& model) {
  for (const DatasetFamily family : kDatasetFamilies) {
    if (find_in_family(model, family) != nullptr) return family_name(family);
  }
  return family_name(DatasetFamily::kImagenet);
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
  if (options.num_classes <= 0 || options.num_classes > kMaxClasses) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "a model needs at least one class",
                                                          .where = name,
                                                          .expected = fmt::format("1 to {} classes", kMaxClasses),
                                                          .actual = fmt::format("{} classes", options.num_classes)});
  }
  const ModelInfo& info = find_model(name, dataset);
  ModelOptions complete = options;
  if (complete.image_size == nn::Size2d(0)) complete.image_size = info.image_size;
  check_image_size(info, complete.image_size);
  if (complete.auxiliary_heads && info.auxiliary.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "this model has no auxiliary classifiers",
                       .where = name,
                       .expected = "one that has: torchvision/googlenet or torchvision/inception_v3",
                       .remedy = "leave --auxiliary_heads out"});
  }
  std::optional<nn::Graph> graph;
  try {
    graph = info.build(complete);
  } catch (const core::Error& error) {
    const nn::Size2d size = complete.image_size;
    const bool own = size == nn::Size2d(info.image_size);
    if (own || error.code() != core::ErrorCode::kInvalidArgument || !builds_at(info, info.image_size)) throw;
    const int64_t smallest = smallest_image_side(info);
    if (size.height >= smallest && size.width >= smallest) throw;
    throw refused_size(
        info, size,
        fmt::format("at least {}, of which a pixel is left before the classifier", image_size_text(smallest)));
  }
  graph->name = info.name;  // by which files name the model, and what reads weights finds its registration
  return with_training_options(*std::move(graph), complete);
}

}  // namespace trainyard::models
