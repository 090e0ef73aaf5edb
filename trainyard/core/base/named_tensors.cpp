#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/base/tensors.h"

namespace trainyard::core {

NamedTensors::NamedTensors(std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries) {
    if (has(entry.name)) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("two tensors are named '{}'", entry.name)});
    }
    set(entry.name, entry.tensor);
  }
}

std::vector<std::string> NamedTensors::names() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

const at::Tensor* NamedTensors::find(std::string_view name) const {
  for (const Entry& entry : entries_) {
    if (entry.name == name) return &entry.tensor;
  }
  return nullptr;
}

const at::Tensor& NamedTensors::operator[](std::string_view name) const {
  if (const at::Tensor* const tensor = find(name)) return *tensor;
  throw unknown_name("tensor", name, names());
}

void NamedTensors::set(std::string_view name, at::Tensor tensor) {
  if (name.empty()) throw Error(ErrorCode::kInvalidArgument, {.problem = "a tensor without a name cannot be kept"});
  for (Entry& entry : entries_) {
    if (entry.name != name) continue;
    entry.tensor = std::move(tensor);
    return;
  }
  entries_.push_back({std::string(name), std::move(tensor)});
}

}  // namespace trainyard::core
