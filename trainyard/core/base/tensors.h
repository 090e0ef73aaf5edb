// Tensors by name, and new tensors.
//
//   NamedTensors batch({{"images", new_tensor({32, 3, 224, 224})}, {"labels", labels}});
//   batch["images"].size(0);
//   batch.set("weights", weights);
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::core {

// Returns a tensor of zeros in host memory. Throws what LibTorch throws for negative sizes. LibTorch's own headers for
// it take longer to compile than all of this library's.
[[nodiscard]] at::Tensor new_tensor(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat);

// An ordered list of named tensors: the content of a batch, the inputs and outputs of a graph, the losses of a step.
class NamedTensors {
 public:
  struct Entry {
    std::string name{};
    at::Tensor tensor{};
  };

  NamedTensors() = default;
  // Throws kInvalidArgument when two tensors have the same name, and for an empty name.
  NamedTensors(std::initializer_list<Entry> entries);

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  std::vector<Entry>::const_iterator begin() const { return entries_.begin(); }
  std::vector<Entry>::const_iterator end() const { return entries_.end(); }
  std::vector<std::string> names() const;  // in the order of the entries

  bool has(std::string_view name) const { return find(name) != nullptr; }
  // Returns null when no tensor has that name.
  [[nodiscard]] const at::Tensor* find(std::string_view name) const;
  // Throws kNotFound when no tensor has that name; the message lists the names.
  const at::Tensor& operator[](std::string_view name) const;
  // Replaces the tensor of that name, or appends it when there is none. Throws kInvalidArgument for an empty name.
  void set(std::string_view name, at::Tensor tensor);

 private:
  std::vector<Entry> entries_;  // few: they are searched one by one
};

}  // namespace trainyard::core
TRAINYARD_EXPORT_END
