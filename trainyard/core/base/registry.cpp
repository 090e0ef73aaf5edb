#include "trainyard/core/base/registry.h"

#include <algorithm>
#include <set>

#include "trainyard/core/base/log.h"
#include "trainyard/core/base/lower_case.h"

namespace trainyard::core {
namespace {

// What people do not mean to distinguish: case, and '-' for '_'.
std::string folded(std::string_view name) {
  std::string text = lower_case(name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (Damerau-Levenshtein, optimal
// string alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_previous(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before_previous[j - 2] + 1);
      }
    }
    std::swap(before_previous, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  const std::string wanted = folded(name);
  // A third of the letters wrong is a slip; more is another word.
  size_t best_distance = std::max<size_t>(1, wanted.size() / 3) + 1;
  std::string best;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(wanted, folded(candidate));
    // One letter for one letter ("a" for "b") tells nothing.
    if (distance < best_distance && distance < candidate.size()) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

void note_former_name(std::string_view kind, std::string_view former, std::string_view now) {
  static std::mutex mutex;
  static std::set<std::string> noted;
  {
    std::lock_guard lock(mutex);
    if (!noted.insert(std::string(kind) + " " + std::string(former)).second) return;
  }
  log::info("{} '{}' is now called '{}'", kind, former, now);
}

Error unknown_name(std::string_view kind, std::string_view name, const std::vector<std::string>& known) {
  std::string remedy;
  if (const std::string nearest = nearest_name(name, known); !nearest.empty()) {
    remedy = "did you mean '" + nearest + "'? ";
  }
  remedy += "known: ";
  for (size_t i = 0; i < known.size(); ++i) remedy += (i == 0 ? "" : ", ") + known[i];
  if (known.empty()) remedy += "none";
  return {ErrorCode::kNotFound,
          {.problem = "unknown " + std::string(kind) + " '" + std::string(name) + "'", .remedy = std::move(remedy)}};
}

}  // namespace trainyard::core
