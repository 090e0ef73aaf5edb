#include "trainyard/frontends/tf_cnn/output/graph_files.h"

#include <gtest/gtest.h>

namespace trainyard::frontends::graph_files_test {
namespace {

// By the code of tf_cnn_benchmarks: what stands behind the last dot of the file's name comes last.
TEST(GraphFiles, HaveTheDeviceInTheirName) {
  struct Case {
    const char *path, *device, *expected;
  };
  for (const Case& c :
       {Case{"out/part.txt", "/cpu:0", "out/part_cpu_0.txt"}, Case{"part", "/gpu:3", "part_gpu_3"},
        Case{"a.b/part", "/cpu:0", "a.b/part_cpu_0"}, Case{"/tmp/a.b.onnx", "/cpu:1", "/tmp/a.b_cpu_1.onnx"}}) {
    EXPECT_EQ(partition_path(c.path, c.device), c.expected);
  }
}

}  // namespace
}  // namespace trainyard::frontends::graph_files_test
