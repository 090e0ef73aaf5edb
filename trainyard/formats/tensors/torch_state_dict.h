// Reads PyTorch's state dicts as torch.save has written them since version 1.6: a zip archive with a pickle that
// describes the tensors, and their numbers (docs/formats/torch_state_dict.md). Nothing is executed: the pickle may only
// build dictionaries, lists, numbers, strings and tensors.
#pragma once

#include <vector>

#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/tensors/tensor_file.h"

namespace trainyard::formats {

// Returns true when the file is a zip archive, or a pickle from before PyTorch 1.6, which read_torch_state_dict()
// rejects.
[[nodiscard]] bool looks_like_torch(const core::ReadableFile& file);

// Returns the tensors of the state dict: the file's value, or that under "state_dict", "model_state_dict" or "model" of
// a training checkpoint. Entries that are not tensors are left out. Throws kCorruptData naming the file, the
// instruction or the tensor, and kUnsupported for files from before 1.6.
[[nodiscard]] std::vector<StoredTensor> read_torch_state_dict(const core::ReadableFile& file);

}  // namespace trainyard::formats
