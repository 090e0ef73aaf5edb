#include "trainyard/frontends/tf_cnn/output/graph_files.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/nn/export/write_onnx.h"
#include "trainyard/nn/graph/graph_text.h"

namespace trainyard::frontends {

void write_graph_file(const std::string& path, const nn::Graph& graph, const nn::ParameterSet& parameters,
                      const std::string& what, const Print& print) {
  const bool text = path.ends_with("txt");
  if (!text && !parameters.values().is_cpu()) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "a graph on a GPU is not written as ONNX",
                       .where = path,
                       .remedy = "give the file a name that ends in .txt; or train, then use `trainyard export`"});
  }
  print(fmt::format("Writing {} as {} to {}", what, text ? "text" : "binary", path));
  core::FileSystem& files = core::local_file_system();
  if (const std::string folder = core::parent_path(path); !folder.empty()) files.make_directories(folder);
  const nn::Graph main = nn::main_output_graph(graph);
  if (text) {
    core::write_user_output(path, nn::graph_text(main), files);
  } else {
    nn::write_onnx(path, main, parameters);
  }
}

std::string partition_path(const std::string& prefix, const std::string& device) {
  std::string name = device;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '/' || c == ':'; }, '_');
  const size_t file = prefix.rfind('/') + 1;  // 0 where there is no folder
  const size_t dot = prefix.rfind('.');
  if (dot == std::string::npos || dot < file) return prefix + name;
  return prefix.substr(0, dot) + name + prefix.substr(dot);
}

}  // namespace trainyard::frontends
