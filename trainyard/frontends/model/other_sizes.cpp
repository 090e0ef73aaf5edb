#include "trainyard/frontends/model/other_sizes.h"

#include <algorithm>
#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/frontends/input/image_size.h"
#include "trainyard/nn/execution/sized_executor.h"

namespace trainyard::frontends {

std::vector<nn::Graph> graphs_of_other_sizes(const nn::Graph& graph, const std::vector<data::EpochSize>& sizes,
                                             const std::function<nn::Graph(nn::Size2d)>& build) {
  std::vector<nn::Graph> graphs;
  std::vector<nn::Size2d> known = {image_size_of(graph)};
  for (const data::EpochSize& entry : sizes) {
    const nn::Size2d size(entry.size.height, entry.size.width);
    if (std::find(known.begin(), known.end(), size) != known.end()) continue;
    known.push_back(size);
    graphs.push_back(build(size));
    try {
      nn::check_same_parameters(graph, graphs.back());
    } catch (const core::Error& error) {
      core::ErrorDetail detail = error.detail();
      detail.problem = "--progressive_sizes cannot be used: " + detail.problem;
      detail.remedy = "leave it out, or take a model that pools all places before its classifier, such as a ResNet";
      throw core::Error(error.code(), detail);
    }
  }
  return graphs;
}

}  // namespace trainyard::frontends
