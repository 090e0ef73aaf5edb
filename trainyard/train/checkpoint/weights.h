// Loads and saves a model's weights in files of tensors (formats/tensors/tensor_file.h): parameters and statistics by
// name, without the training's state.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/nn/execution/parameter_set.h"

namespace trainyard::train {
struct PositionGrid;  // train/checkpoint/position_embedding.h
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct LoadedWeights {
  int64_t tensors = 0;              // tensors that were loaded
  int64_t file_classes = 0;         // classes of the file's head, when the head is left out; else 0
  std::vector<std::string> head{};  // names of the tensors that keep their initial values
};

// Copies the file's tensors of any number type into `set`, which is allocated and initialized. Names and shapes must be
// the same, with these exceptions:
//
//   - Counts of batches (num_batches_tracked), which no computation reads, are left out.
//   - A head of another number of classes stays as it is. A head is one layer, all of whose tensors have num_classes as
//     their first size here and one other number in the file.
//   - Tensors whose names begin with one of `auxiliary` (models::ModelInfo) are left out, and a line says so.
//   - A position embedding that `positions` lists is interpolated where the file's is for other patches.
//
// Throws kInvalidArgument with the missing, unexpected and misshapen names, before anything is copied. Throws
// kCorruptData with the tensors that hold NaN or infinity; then `set` is not to be used.
LoadedWeights load_weights(const formats::TensorFile& file, nn::ParameterSet& set, int64_t num_classes,
                           const std::vector<std::string>& auxiliary, const std::vector<PositionGrid>& positions);
// Does the same without position embeddings that may be of another size.
LoadedWeights load_weights(const formats::TensorFile& file, nn::ParameterSet& set, int64_t num_classes,
                           const std::vector<std::string>& auxiliary = {});

// Returns all parameters and statistics, in float32, in the form that load_weights() accepts, as if read from a file
// `path`. The values are copied.
[[nodiscard]] formats::TensorFile tensor_file_of(const nn::ParameterSet& set, const std::string& path);

// Writes all parameters and statistics as safetensors in float32, in the order of their declaration. `metadata` is
// added to {"format": "pt"}.
void save_weights(const std::string& path, const nn::ParameterSet& set,
                  std::map<std::string, std::string> metadata = {});

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
