#include "trainyard/core/threads/affinity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::core {
namespace {

[[noreturn]] void refuse(std::string_view text, std::string_view part, const char* expected) {
  throw Error(ErrorCode::kInvalidArgument, {.problem = "the placement of threads is not understood",
                                            .where = fmt::format("'{}' in '{}'", part, text),
                                            .expected = expected,
                                            .remedy = "for example granularity=fine,compact,1,0; see docs/howto.md"});
}

// At commas outside of brackets and braces.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    } else if (text[i] == '[' || text[i] == '{') {
      ++depth;
    } else if (text[i] == ']' || text[i] == '}') {
      --depth;
    }
  }
  return parts;
}

// "[0,4-6:2,{1,2}]": places 0, 4, 6 and the pair 1, 2.
std::vector<CpuList> parse_proclist(std::string_view text, std::string_view list) {
  constexpr const char* kExpected = "CPUs as in proclist=[0,4-6:2,{1,2}]";
  if (list.size() < 2 || list.front() != '[' || list.back() != ']') refuse(text, list, kExpected);
  std::vector<CpuList> places;
  for (const std::string_view part : parts_of(list.substr(1, list.size() - 2))) {
    if (part.size() > 2 && part.front() == '{' && part.back() == '}') {
      const auto cpus = parse_cpu_list(part.substr(1, part.size() - 2));
      if (!cpus || cpus->empty()) refuse(text, part, kExpected);
      places.push_back(*cpus);
      continue;
    }
    const size_t dash = part.find('-'), colon = part.find(':');
    const auto first = parse_cpu_number(part.substr(0, std::min(dash, colon)));
    const auto last =
        dash == std::string_view::npos ? first : parse_cpu_number(part.substr(dash + 1, colon - dash - 1));
    const auto stride = colon == std::string_view::npos ? 1 : parse_cpu_number(part.substr(colon + 1));
    const bool has_range = dash != std::string_view::npos || colon == std::string_view::npos;
    if (!first || !last || !stride || *stride == 0 || *last < *first || !has_range) refuse(text, part, kExpected);
    for (int cpu = *first; cpu <= *last; cpu += *stride) places.push_back({cpu});
  }
  return places;
}

Affinity::Granularity parse_granularity(std::string_view text, std::string_view name) {
  if (name == "fine" || name == "thread") return Affinity::Granularity::kThread;
  if (name == "core") return Affinity::Granularity::kCore;
  if (name == "package" || name == "socket") return Affinity::Granularity::kPackage;
  refuse(text, name, "granularity=fine, thread, core, package or socket");
}

// A position as coordinates, outermost first, without levels that do not tell CPUs apart (one CPU a core; one core a
// package): LLVM's runtime leaves them out, so `permute` must not count them.
using Coordinates = std::array<int, 3>;
struct Order {
  std::array<bool, 3> kept{true, true, true};
  int permute = 0;

  bool operator()(const CpuPosition& a, const CpuPosition& b) const { return key(a) < key(b); }
  int depth() const { return static_cast<int>(std::count(kept.begin(), kept.end(), true)); }

  // The `permute` innermost levels, from the innermost on, then the others from the outermost on.
  Coordinates key(const CpuPosition& position) const {
    const Coordinates all{position.package, position.core, position.thread};
    std::vector<int> levels;
    for (size_t i = 0; i < all.size(); ++i) {
      if (kept[i]) levels.push_back(all[i]);
    }
    Coordinates result{};
    size_t next = 0;
    const size_t inner = static_cast<size_t>(permute);
    for (size_t i = 0; i < inner; ++i) result[next++] = levels[levels.size() - 1 - i];
    for (size_t i = 0; i + inner < levels.size(); ++i) result[next++] = levels[i];
    return result;
  }
};

Order order_of(const Affinity& affinity, const std::vector<CpuPosition>& positions) {
  const auto differs = [&](int CpuPosition::*level) {
    return std::any_of(positions.begin(), positions.end(), [&](const CpuPosition& p) { return p.*level > 0; });
  };
  Order order;
  order.kept[2] = differs(&CpuPosition::thread);
  order.kept[1] = differs(&CpuPosition::core);
  const int depth = order.depth();
  if (affinity.type == Affinity::Type::kScatter) {
    order.permute = affinity.permute >= depth ? 0 : depth - 1 - affinity.permute;
  } else {
    order.permute = std::min(affinity.permute, depth - 1);
  }
  return order;
}

bool same_place(const CpuPosition& a, const CpuPosition& b, Affinity::Granularity granularity) {
  if (a.package != b.package) return false;
  if (granularity == Affinity::Granularity::kPackage) return true;
  return a.core == b.core && (granularity == Affinity::Granularity::kCore || a.thread == b.thread);
}

std::vector<CpuList> checked_explicit(const Affinity& affinity, const std::vector<CpuPosition>& positions) {
  for (const CpuList& place : affinity.places) {
    for (const int cpu : place) {
      if (std::any_of(positions.begin(), positions.end(), [&](const CpuPosition& p) { return p.cpu == cpu; })) continue;
      CpuList known;
      for (const CpuPosition& position : positions) known.push_back(position.cpu);
      throw Error(ErrorCode::kInvalidArgument, {.problem = "proclist names a CPU that the threads may not use",
                                                .expected = "some of CPUs " + format_cpu_list(known),
                                                .actual = std::to_string(cpu)});
    }
  }
  return affinity.places;
}

}  // namespace

Affinity parse_affinity(std::string_view text) {
  Affinity affinity;
  bool typed = false;
  std::vector<int> numbers;
  for (const std::string_view part : parts_of(text)) {
    const auto value_of = [&](std::string_view name) { return part.substr(std::min(part.size(), name.size())); };
    if (const auto value = parse_cpu_number(part); value && typed && numbers.size() < 2) {
      numbers.push_back(*value);
    } else if (typed) {
      refuse(text, part, "two numbers at most behind the type");
    } else if (part.starts_with("granularity=")) {
      affinity.granularity = parse_granularity(text, value_of("granularity="));
    } else if (part.starts_with("proclist=")) {
      affinity.places = parse_proclist(text, value_of("proclist="));
    } else if (part == "verbose" || part == "noverbose") {
      affinity.verbose = part == "verbose";
    } else if (part == "respect" || part == "norespect") {
      affinity.respect = part == "respect";
    } else if (part == "compact" || part == "scatter" || part == "explicit" || part == "none" || part == "disabled") {
      affinity.type = part == "compact"    ? Affinity::Type::kCompact
                      : part == "scatter"  ? Affinity::Type::kScatter
                      : part == "explicit" ? Affinity::Type::kExplicit
                                           : Affinity::Type::kNone;
      typed = true;
    } else if (part != "warnings" && part != "nowarnings") {  // all problems are errors here
      refuse(text, part, "a modifier, or one of compact, scatter, explicit, none and disabled");
    }
  }
  if (!typed) refuse(text, text, "one of compact, scatter, explicit, none and disabled");
  const bool by_position = affinity.type == Affinity::Type::kCompact || affinity.type == Affinity::Type::kScatter;
  if (!numbers.empty() && !by_position) refuse(text, text, "numbers behind compact and scatter only");
  if ((affinity.type == Affinity::Type::kExplicit) == affinity.places.empty()) {
    refuse(text, text, "proclist with the type explicit, and only with it");
  }
  if (!numbers.empty()) affinity.permute = numbers[0];
  if (numbers.size() == 2) affinity.offset = numbers[1];
  return affinity;
}

std::vector<CpuList> affinity_places(const Affinity& affinity, const std::vector<CpuPosition>& positions) {
  if (affinity.type == Affinity::Type::kNone) return {};
  if (affinity.type == Affinity::Type::kExplicit) return checked_explicit(affinity, positions);
  std::vector<CpuPosition> sorted = positions;
  std::stable_sort(sorted.begin(), sorted.end(), order_of(affinity, positions));
  std::vector<CpuList> places;
  for (const CpuPosition& position : sorted) {
    CpuList place;
    for (const CpuPosition& other : positions) {
      if (same_place(position, other, affinity.granularity)) place.push_back(other.cpu);
    }
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }
  const auto first = static_cast<size_t>(affinity.offset) % places.size();
  std::rotate(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(first), places.end());
  return places;
}

}  // namespace trainyard::core
