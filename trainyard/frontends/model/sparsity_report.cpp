#include "trainyard/frontends/model/sparsity_report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/log.h"

namespace trainyard::frontends {

using optim::LayerSparsity;
using optim::SparsityTreatment;

namespace {

bool is_to_be_sparse(const LayerSparsity& each) {
  return each.layer.treatment == SparsityTreatment::kSparse;
}

int64_t elements_of(const LayerSparsity& each) {
  int64_t count = 1;
  for (const int64_t extent : each.layer.shape) count *= extent;
  return count;
}

std::string why_dense(const LayerSparsity& each) {
  if (each.layer.treatment == SparsityTreatment::kExcluded) return "dense: excluded";
  return fmt::format("dense: {} input{}", each.layer.shape[1], each.layer.shape[1] == 1 ? "" : "s");
}

}  // namespace

double SparsityCounts::density() const {
  return elements == 0 ? 1.0 : static_cast<double>(others_than_zero) / static_cast<double>(elements);
}

SparsityCounts count_sparsity(const std::vector<LayerSparsity>& layers) {
  SparsityCounts counts;
  for (const LayerSparsity& each : layers) {
    if (!is_to_be_sparse(each)) continue;
    ++counts.weights;
    counts.two_of_four += each.two_of_four ? 1 : 0;
    counts.elements += elements_of(each);
    counts.others_than_zero += std::llround(each.density * static_cast<double>(elements_of(each)));
  }
  return counts;
}

void log_pruning(const std::vector<LayerSparsity>& pruned, optim::MaskAlgorithm algorithm) {
  if (pruned.empty()) {
    core::log::info("2:4 sparsity: the run goes on with the masks of its checkpoint");
    return;
  }
  std::vector<std::string> dense;
  double least = 1, most = 0;
  for (const LayerSparsity& each : pruned) {
    if (is_to_be_sparse(each)) {
      least = std::min(least, each.kept);
      most = std::max(most, each.kept);
    } else {
      dense.push_back(fmt::format("{} ({})", each.layer.parameter, why_dense(each).substr(7)));
    }
  }
  const SparsityCounts counts = count_sparsity(pruned);
  core::log::info("2:4 sparsity: {} weights pruned by {}, which keeps {:.1f} to {:.1f} % of their magnitudes{}{}",
                  counts.weights, optim::mask_algorithm_name(algorithm), 100 * least, 100 * most,
                  dense.empty() ? "" : "; dense: ", fmt::join(dense, ", "));
}

std::string sparsity_table(const std::vector<LayerSparsity>& layers) {
  size_t width = 6;
  for (const LayerSparsity& each : layers) width = std::max(width, each.layer.parameter.size());
  std::string text =
      fmt::format("{:{}}  {:20} {:>7}  {:3} {:>6}  \n", "weight", width, "shape", "density", "2:4", "kept");
  for (const LayerSparsity& each : layers) {
    text += fmt::format("{:{}}  {:20} {:7.3f}  {:3} ", each.layer.parameter, width, nn::to_string(each.layer.shape),
                        each.density, each.two_of_four ? "yes" : "no");
    text += is_to_be_sparse(each) ? fmt::format("{:6.3f}  {}\n", each.kept, each.masked ? "mask" : "")
                                  : fmt::format("{:>6}  {}\n", "-", why_dense(each));
  }
  const SparsityCounts counts = count_sparsity(layers);
  // Lines end without blanks.
  for (size_t at = text.find(" \n"); at != std::string::npos; at = text.find(" \n")) text.erase(at, 1);
  return text + fmt::format("{} of {} weights that can be sparse are 2:4; their density is {:.3f}\n",
                            counts.two_of_four, counts.weights, counts.density());
}

std::string sparsity_json(const std::vector<LayerSparsity>& layers, const TrainedModel& trained,
                          optim::MaskAlgorithm algorithm) {
  nlohmann::ordered_json weights = nlohmann::ordered_json::array();
  for (const LayerSparsity& each : layers) {
    weights.push_back({{"name", each.layer.parameter},
                       {"shape", each.layer.shape},
                       {"treatment", optim::treatment_name(each.layer.treatment)},
                       {"density", each.density},
                       {"two_of_four", each.two_of_four},
                       {"masked", each.masked},
                       {"kept", each.kept}});
  }
  const SparsityCounts counts = count_sparsity(layers);
  const nlohmann::ordered_json all = {{"model", trained.identity.model},
                                      {"dataset", trained.identity.dataset},
                                      {"path", trained.checkpoint.path},
                                      {"mask_algo", optim::mask_algorithm_name(algorithm)},
                                      {"weights", weights},
                                      {"sparse_weights", counts.weights},
                                      {"two_of_four_weights", counts.two_of_four},
                                      {"density", counts.density()}};
  return all.dump(2) + "\n";
}

}  // namespace trainyard::frontends
