// Weights as other programs write them, for tests.
#pragma once

#include <string>
#include <vector>

#include "trainyard/formats/tensors/safetensors.h"

namespace trainyard::cli {

// Writes the tensors of a file that `trainyard export` wrote without what it says of the model.
inline void copy_without_metadata(const std::string& from, const std::string& to) {
  const formats::TensorFile file = formats::open_tensor_file(from);
  std::vector<std::vector<float>> values;
  std::vector<formats::FloatTensor> tensors;
  for (const formats::StoredTensor& tensor : file.tensors()) values.push_back(file.read_floats(tensor));
  for (size_t i = 0; i < values.size(); ++i) {
    tensors.push_back({file.tensors()[i].name, file.tensors()[i].shape, values[i]});
  }
  formats::write_safetensors(to, tensors);
}

}  // namespace trainyard::cli
