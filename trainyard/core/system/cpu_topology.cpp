#include "trainyard/core/system/cpu_topology.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sched.h>

namespace trainyard::core {
namespace {

constexpr int kMostCpus = 1 << 16;

std::string_view stripped(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return text;
}

// The number in a file; 0 when the system does not say, or says -1 for "unknown".
int number_in(const std::string& path, const ReadText& read) {
  return parse_cpu_number(stripped(read(path).value_or(""))).value_or(0);
}

// Numbers things by the order in which they come.
template <typename Key>
class Counter {
 public:
  int of(const Key& key) { return numbers_.emplace(key, static_cast<int>(numbers_.size())).first->second; }

 private:
  std::map<Key, int> numbers_;
};

}  // namespace

std::optional<int> parse_cpu_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value >= kMostCpus) return std::nullopt;
  return value;
}

std::optional<CpuList> parse_cpu_list(std::string_view text) {
  text = stripped(text);
  CpuList cpus;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    const size_t dash = part.find('-');
    const auto first = parse_cpu_number(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_cpu_number(part.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    if (part.size() + 1 == text.size()) return std::nullopt;  // a comma at the end
    text.remove_prefix(std::min(text.size(), part.size() + 1));
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string format_cpu_list(const CpuList& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ",";
    text += last == i ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[last]);
    i = last + 1;
  }
  return text;
}

std::vector<CpuPosition> cpu_positions(const CpuList& cpus, const ReadText& read) {
  // By package, core and CPU, whatever the system's own numbers are: cores may have gaps.
  std::vector<std::pair<std::pair<int, int>, size_t>> order;
  bool said = true;
  for (size_t i = 0; i < cpus.size(); ++i) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpus[i]);
    said = said && read(folder + "core_id").has_value();
    order.push_back({{number_in(folder + "physical_package_id", read), number_in(folder + "core_id", read)}, i});
  }
  if (!said) {
    for (auto& [place, i] : order) place = {0, static_cast<int>(i)};
  }
  std::sort(order.begin(), order.end());
  std::vector<CpuPosition> positions(cpus.size());
  Counter<int> packages;
  std::map<int, Counter<int>> cores;
  std::map<std::pair<int, int>, int> threads;
  for (const auto& [place, i] : order) {
    positions[i] = {.cpu = cpus[i],
                    .package = packages.of(place.first),
                    .core = cores[place.first].of(place.second),
                    .thread = threads[place]++};
  }
  return positions;
}

std::vector<NumaNode> numa_nodes(const CpuList& cpus, const ReadText& read) {
  std::vector<NumaNode> nodes;
  for (const int number : parse_cpu_list(read("/sys/devices/system/node/online").value_or("")).value_or(CpuList{})) {
    const auto of_node =
        parse_cpu_list(read(fmt::format("/sys/devices/system/node/node{}/cpulist", number)).value_or(""));
    NumaNode node{.number = number, .cpus = {}};
    for (const int cpu : of_node.value_or(CpuList{})) {
      if (std::binary_search(cpus.begin(), cpus.end(), cpu)) node.cpus.push_back(cpu);
    }
    if (!node.cpus.empty()) nodes.push_back(std::move(node));  // memory alone has no threads of its own
  }
  if (nodes.empty()) nodes.push_back({.number = 0, .cpus = cpus});
  return nodes;
}

CpuList allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return online_cpus();
  CpuList cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

CpuList online_cpus(const ReadText& read) {
  const auto cpus = parse_cpu_list(read("/sys/devices/system/cpu/online").value_or(""));
  return cpus && !cpus->empty() ? *cpus : CpuList{0};
}

}  // namespace trainyard::core
