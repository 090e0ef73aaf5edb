#include "trainyard/recipes/benchmark_state.h"

#include <sstream>

namespace trainyard::recipes {
namespace {

const std::string kLabelNames = "data/label_names";  // one a line

}  // namespace

void BenchmarkState::save(core::StateWriter& writer) const {
  trainer_->save(writer);
  if (label_names_.empty()) return;
  std::string lines;
  for (const std::string& name : label_names_) lines += name + "\n";
  writer.text(kLabelNames, lines);
}

void BenchmarkState::load(const core::StateReader& reader) {
  trainer_->load(reader);
  if (label_names_.empty()) label_names_ = load_label_names(reader);
}

std::vector<std::string> load_label_names(const core::StateReader& reader) {
  std::vector<std::string> names;
  if (!reader.has(kLabelNames)) return names;
  std::istringstream lines(reader.text(kLabelNames));
  for (std::string line; std::getline(lines, line);) names.push_back(line);
  return names;
}

}  // namespace trainyard::recipes
