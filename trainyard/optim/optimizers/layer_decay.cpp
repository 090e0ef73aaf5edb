#include "trainyard/optim/optimizers/layer_decay.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

namespace trainyard::optim {
namespace {

// Places of layer groups, in their order: {0} is the stem, {1, stage, block} a block.
using Place = std::array<int64_t, 3>;
constexpr int64_t kLast = 1'000'000'000;  // behind all stages and blocks
constexpr Place kStem{0}, kLastBlock{1, kLast}, kHead{2};

// Removes `start` from the front of the name, and returns whether it was there.
bool take(std::string_view& name, std::string_view start) {
  if (!name.starts_with(start)) return false;
  name.remove_prefix(start.size());
  return true;
}

// Removes a number and the dot behind it.
std::optional<int64_t> take_number(std::string_view& name) {
  int64_t number = 0;
  size_t digits = 0;
  for (; digits < name.size() && digits < 8 && name[digits] >= '0' && name[digits] <= '9'; ++digits) {
    number = 10 * number + (name[digits] - '0');
  }
  if (digits == 0 || digits == name.size() || name[digits] != '.') return std::nullopt;
  name.remove_prefix(digits + 1);
  return number;
}

Place vision_transformer_place(std::string_view name) {
  if (take(name, "encoder.layers.encoder_layer_")) {
    if (const auto block = take_number(name)) return {1, 0, *block};
  }
  if (name.starts_with("encoder.ln.")) return kLastBlock;
  const bool stem = name.starts_with("conv_proj.") || name == "class_token" || name == "encoder.pos_embedding";
  return stem ? kStem : kHead;
}

// features.0 is the stem, features.1, 3, 5 and 7 are the stages, and those between them downsample.
Place convnext_place(std::string_view name) {
  if (!take(name, "features.")) return kHead;
  const std::optional<int64_t> part = take_number(name);
  if (!part) return kHead;
  if (*part == 0) return kStem;
  if (*part % 2 == 0) return {1, *part / 2, 0};
  return {1, *part / 2, take_number(name).value_or(0)};
}

Place resnet_place(std::string_view name) {
  if (name.starts_with("conv1.") || name.starts_with("bn1.")) return kStem;
  if (name.starts_with("bn_last.")) return kLastBlock;  // of the second form, which normalizes in front of convolutions
  if (take(name, "layer")) {
    if (const auto stage = take_number(name)) {
      if (const auto block = take_number(name)) return {1, *stage, *block};
    }
  }
  return kHead;
}

// Returns the name of the layer: "fc" for "fc.weight".
std::string_view layer_of(std::string_view name) {
  return name.substr(0, name.rfind('.'));
}

std::vector<Place> places_by_count(const std::vector<std::string>& names) {
  constexpr int64_t kTogether = 12;  // timm's layers_per_group
  std::vector<Place> places;
  int64_t count = 0;
  for (const std::string& name : names) {
    places.push_back(layer_of(name) == layer_of(names.back()) ? kHead : Place{1, 0, count++ / kTogether});
  }
  return places;
}

bool any(const std::vector<std::string>& names, bool (*holds)(std::string_view)) {
  return std::any_of(names.begin(), names.end(), holds);
}

std::vector<Place> places_of(const std::vector<std::string>& names) {
  Place (*place)(std::string_view) = nullptr;
  if (any(names, [](std::string_view name) { return name.starts_with("encoder.layers.encoder_layer_"); })) {
    place = vision_transformer_place;
  } else if (any(names, [](std::string_view name) {
               return name.starts_with("features.") && name.ends_with(".layer_scale");
             })) {
    place = convnext_place;
  } else if (any(names, [](std::string_view name) { return name.starts_with("layer1.0."); }) &&
             any(names, [](std::string_view name) { return name == "conv1.weight"; })) {
    place = resnet_place;
  }
  if (place == nullptr) return places_by_count(names);
  std::vector<Place> places;
  for (const std::string& name : names) places.push_back(place(name));
  return places;
}

}  // namespace

std::vector<double> layer_rate_factors(const std::vector<std::string>& names, double decay) {
  const std::vector<Place> places = places_of(names);
  std::map<Place, int64_t> groups;
  for (const Place& place : places) groups.emplace(place, 0);
  int64_t count = 0;
  for (auto& [place, group] : groups) {
    // The norm behind the last block is in the group of that block.
    group = place == kLastBlock && count > 0 ? count - 1 : count++;
  }
  std::vector<double> factors;
  for (const Place& place : places) {
    factors.push_back(std::pow(decay, static_cast<double>(count - 1 - groups.at(place))));
  }
  return factors;
}

}  // namespace trainyard::optim
