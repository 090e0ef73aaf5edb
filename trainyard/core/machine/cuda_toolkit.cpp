#include "trainyard/core/machine/cuda_toolkit.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace trainyard::core {
namespace {

// CUDA_VERSION of include/cuda.h: 13000 for 13.0; 0 where there is none.
int version_of(const std::filesystem::path& folder) {
  std::ifstream header(folder / "include" / "cuda.h");
  for (std::string line; std::getline(header, line);) {
    std::istringstream words(line);
    std::string define, name;
    int version = 0;
    if (words >> define >> name >> version && define == "#define" && name == "CUDA_VERSION") return version;
  }
  return 0;
}

}  // namespace

std::string find_cuda_toolkit(const std::vector<std::string>& folders, int oldest) {
  for (const std::string& folder : folders) {
    std::error_code unknown;
    const bool compiles = std::filesystem::is_regular_file(std::filesystem::path(folder) / "bin" / "nvcc", unknown);
    if (compiles && version_of(folder) >= oldest) return folder;
  }
  return "";
}

std::vector<std::string> cuda_toolkit_folders() {
  std::vector<std::string> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* folder = std::getenv(name); folder != nullptr && *folder != '\0') folders.emplace_back(folder);
  }
  if (const char* path = std::getenv("PATH")) {
    std::istringstream all(path);
    for (std::string bin; std::getline(all, bin, ':');) {
      const std::filesystem::path folder(bin);
      if (folder.filename() == "bin" && folder.is_absolute()) folders.push_back(folder.parent_path().string());
    }
  }
  folders.emplace_back("/usr/local/cuda");
  return folders;
}

}  // namespace trainyard::core
