#include "trainyard/parallel/servers/optimizer_settings.h"

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/optim/optimizers/formula_optimizer.h"

namespace trainyard::parallel {
namespace {

std::string number_setting(const std::optional<double>& number) {
  return number ? fmt::format("{}", *number) : "none";
}

std::string norm_clip_setting(const optim::NormClip& clip) {
  constexpr std::array<std::string_view, 3> kKinds{"of each parameter", "of all gradients", "adaptive"};
  constexpr std::array<std::string_view, 2> kRules{"TensorFlow's", "PyTorch's"};
  return fmt::format("{} {} by {} rule, without [{}]", kKinds.at(static_cast<size_t>(clip.kind)), clip.bound,
                     kRules.at(static_cast<size_t>(clip.rule)), fmt::join(clip.excluded, ", "));
}

std::string lookahead_setting(const optim::Lookahead& lookahead) {
  std::string start = fmt::format("{} steps, alpha {}", lookahead.steps, lookahead.alpha);
  if (!lookahead.final_alpha) return start;
  return fmt::format("{} to {} over {} updates", start, *lookahead.final_alpha, lookahead.updates);
}

std::string groups_setting(const std::vector<optim::ParameterGroup>& groups) {
  std::vector<std::string> texts;
  for (const optim::ParameterGroup& group : groups) {
    texts.push_back(fmt::format("{} with {} times the rate and decay {}", group.pattern, group.rate_factor,
                                number_setting(group.weight_decay)));
  }
  return fmt::format("[{}]", fmt::join(texts, "; "));
}

std::string regularization_setting(const std::vector<optim::RegularizationTerm>& terms) {
  constexpr std::array<std::string_view, 3> kKinds{"l2", "l2_half", "l1"};
  std::vector<std::string> texts;
  for (const optim::RegularizationTerm& term : terms) {
    texts.push_back(fmt::format("{} {} of {}: {}", kKinds.at(static_cast<size_t>(term.kind)), term.coefficient,
                                term.pattern, term.name));
  }
  return fmt::format("[{}]", fmt::join(texts, "; "));
}

// Lists of patterns may be long, and an answer of gRPC may not.
std::string shown_setting(const std::string& line) {
  constexpr size_t kLongestShown = 200;
  if (line.empty()) return "nothing";
  return line.size() <= kLongestShown ? line : line.substr(0, kLongestShown) + "...";
}

}  // namespace

std::string optimizer_settings(const optim::Optimizer& optimizer) {
  const optim::OptimizerOptions& options = optimizer.options();
  const std::string name = optim::declared_name(optimizer);
  std::string text = fmt::format("optimizer {}\n", name.empty() ? "of a class of its own" : name);
  const std::vector<std::string> changing = optimizer.hyperparameter_names();
  for (const auto& [number, value] : options.numbers) {
    if (std::find(changing.begin(), changing.end(), number) != changing.end()) continue;
    text += fmt::format("{} {}\n", number, value);
  }
  text += fmt::format("decoupled weight decay {}\n", options.decoupled_decay);
  text += fmt::format("gradient clip {}\n", number_setting(options.gradient_clip));
  text += fmt::format("clip by norm {}\n", options.norm_clip ? norm_clip_setting(*options.norm_clip) : "none");
  text += fmt::format("Lookahead {}\n", options.lookahead ? lookahead_setting(*options.lookahead) : "none");
  text += fmt::format("gradients of the update before {}\n", options.delayed);
  text += fmt::format("layer decay {}\n", options.layer_decay);
  text += fmt::format("groups {}\n", groups_setting(options.groups));
  text += fmt::format("regularization {}\n", regularization_setting(options.regularization));
  text += fmt::format("parameters [{}]\n", fmt::join(options.parameters, ", "));
  text += fmt::format("parameters without muon [{}]\n", fmt::join(options.muon_exclude, ", "));
  return text;
}

std::string all_optimizer_settings(const optim::Optimizer& optimizer) {
  std::string text = optimizer_settings(optimizer);
  for (const std::string& name : optimizer.hyperparameter_names()) {
    text += fmt::format("{} {}\n", name, optimizer.hyperparameter(name));
  }
  return text;
}

void require_same_settings(const std::string& expected, const std::string& actual, const std::string& where,
                           const std::string& problem) {
  if (expected == actual) return;
  std::istringstream own(expected), other(actual);
  std::string wanted, given;
  do {
    wanted.clear();
    given.clear();
    std::getline(own, wanted);
    std::getline(other, given);
  } while (wanted == given && (own || other));
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = problem,
                                                        .where = where,
                                                        .expected = shown_setting(wanted),
                                                        .actual = shown_setting(given),
                                                        .remedy = "pass the same flags to all processes"});
}

}  // namespace trainyard::parallel
