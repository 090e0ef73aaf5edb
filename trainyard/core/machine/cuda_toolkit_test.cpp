#include "trainyard/core/machine/cuda_toolkit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::core::cuda_toolkit_test {
namespace {

constexpr int k13 = 13000;

class CudaToolkit : public ::testing::Test {
 protected:
  std::string make(const std::string& name, const std::string& header) {
    std::string folder = temp_.file(name);
    for (const char* below : {"bin", "include"}) files_.make_directories(join_path(folder, below));
    files_.write_file_atomically(join_path(folder, "bin/nvcc"), "");
    files_.write_file_atomically(join_path(folder, "include/cuda.h"), header);
    return folder;
  }

  TempDir temp_;
  FileSystem& files_ = local_file_system();
};

TEST_F(CudaToolkit, IsFoundWhereCompilerAndVersionSuffice) {
  const std::string old = make("old", "// CUDA\n#define CUDA_VERSION 12040\n");
  const std::string now = make("now", "#define CUDA_VERSION_OLD 1\n#define CUDA_VERSION 13000\n");
  const std::string other = make("other", "");
  EXPECT_EQ(find_cuda_toolkit({temp_.file("nowhere"), other, old, now}, k13), now);
  EXPECT_EQ(find_cuda_toolkit({old, other}, k13), "");
  EXPECT_EQ(find_cuda_toolkit({old}, 12000), old);
  EXPECT_EQ(find_cuda_toolkit({other}, 1), "") << "its version is not known";
  files_.remove_file(join_path(now, "bin/nvcc"));
  EXPECT_EQ(find_cuda_toolkit({now}, k13), "");
}

TEST_F(CudaToolkit, IsLookedForWhereTheEnvironmentSays) {
  const EnvironmentVariable home("CUDA_HOME", "/opt/home"), folder("CUDA_PATH", ""),
      path("PATH", "/opt/cuda/bin:relative/bin::/usr/games");
  EXPECT_THAT(cuda_toolkit_folders(), testing::ElementsAre("/opt/home", "/opt/cuda", "/usr/local/cuda"));
}

}  // namespace
}  // namespace trainyard::core::cuda_toolkit_test
