// Finds NVIDIA's CUDA toolkit on this machine, for programs that were built without it.
#pragma once

#include <string>
#include <vector>

namespace trainyard::core {

// Returns the first of `folders` that holds a CUDA toolkit of at least `oldest` (13000 is 13.0) with its compiler, ""
// where none does.
std::string find_cuda_toolkit(const std::vector<std::string>& folders, int oldest);

// Returns where a toolkit may be: $CUDA_HOME, $CUDA_PATH, the folders above those of $PATH, /usr/local/cuda.
std::vector<std::string> cuda_toolkit_folders();

}  // namespace trainyard::core
