#include "trainyard/nn/execution/device_trace.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <memory>

#include <cxxabi.h>

namespace trainyard::nn {
namespace {

constexpr size_t kLongestName = 96;

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && text != nullptr ? text.get() : symbol;
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$';
}

// Leaves out "a::" and "(anonymous namespace)::" in front of names, but not what has arguments, as "f(int)::".
std::string without_namespaces(std::string_view text) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)::", kScope = "::";
  std::string result;
  size_t word = 0;  // where the name begins that may turn out to be a namespace
  for (size_t i = 0; i < text.size();) {
    if (text.substr(i).starts_with(kAnonymous)) {
      i += kAnonymous.size();
    } else if (text.substr(i).starts_with(kScope) && result.size() > word) {
      result.resize(word);
      i += kScope.size();
    } else {
      const char c = text[i++];
      result += c;
      if (!is_word(c)) word = result.size();
    }
  }
  return result;
}

// Where the parameters begin: the first "(" outside of template arguments that opens no "(anonymous namespace)".
size_t end_of_name(std::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>' && depth > 0 && text[i - 1] != '-') --depth;
    if (text[i] == '(' && depth == 0 && !text.substr(i).starts_with("(anonymous")) return i;
  }
  return text.size();
}

// Where it begins: behind the return type, which templates have.
size_t begin_of_name(std::string_view text) {
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<' || text[i] == '(') ++depth;
    if ((text[i] == '>' || text[i] == ')') && depth > 0) --depth;
    if (text[i] == ' ' && depth == 0) begin = i + 1;
  }
  return begin;
}

}  // namespace

uint64_t next_span() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

std::string kernel_name(std::string_view symbol) {
  std::string name(symbol);
  if (symbol.starts_with("_Z")) {
    const std::string whole = demangled(name);
    std::string_view text = std::string_view(whole).substr(0, end_of_name(whole));
    text.remove_prefix(begin_of_name(text));
    name = without_namespaces(text);
  }
  if (name.size() > kLongestName) name = name.substr(0, kLongestName - 3) + "...";
  return name;
}

void ActivityJoin::add_call(uint64_t call, TraceClock::time_point time) {
  // Without its call an activity is only less well known.
  if (!full()) calls_.emplace_back(call, time);
}

void ActivityJoin::add_span(uint64_t call, uint64_t span) {
  if (!full()) spans_.emplace_back(call, span);
}

void ActivityJoin::add(DeviceActivity activity, uint64_t call) {
  if (full() || activity.end < activity.begin) {
    ++lost_;
  } else {
    activities_.emplace_back(call, std::move(activity));
  }
}

void SpanMarks::mark(const std::vector<uint64_t>& open) {
  const bool last = marks_.size() + 1 >= limit_;
  if (last) ++lost_;
  if (marks_.size() < limit_) marks_.push_back({open.empty() || last ? 0 : open.back(), TraceClock::now()});
}

uint64_t SpanMarks::begin() {
  std::vector<uint64_t>& open = open_[std::this_thread::get_id()];
  open.push_back(next_span());
  mark(open);
  return open.back();
}

void SpanMarks::end() {
  std::vector<uint64_t>& open = open_[std::this_thread::get_id()];
  if (!open.empty()) open.pop_back();
  mark(open);
}

DeviceRecords SpanMarks::take(const std::vector<TraceClock::time_point>& passed, int64_t device, int64_t stream) {
  DeviceRecords records{.activities = {}, .lost = std::exchange(lost_, 0)};
  for (size_t i = 0; i < marks_.size() && i + 1 < passed.size(); ++i) {
    if (marks_[i].span == 0) continue;
    records.activities.push_back({.kind = DeviceActivity::Kind::kSpan,
                                  .device = device,
                                  .stream = stream,
                                  .begin = passed[i],
                                  .end = std::max(passed[i], passed[i + 1]),
                                  .span = marks_[i].span,
                                  .handed_over = marks_[i].handed_over});
  }
  marks_.clear();
  return records;
}

DeviceRecords ActivityJoin::take() {
  const std::unordered_map<uint64_t, TraceClock::time_point> times(calls_.begin(), calls_.end());
  const std::unordered_map<uint64_t, uint64_t> spans(spans_.begin(), spans_.end());
  DeviceRecords records{.activities = {}, .lost = std::exchange(lost_, 0)};
  for (auto& [call, activity] : activities_) {
    if (const auto time = times.find(call); time != times.end()) activity.handed_over = time->second;
    if (const auto span = spans.find(call); span != spans.end()) activity.span = span->second;
    records.activities.push_back(std::move(activity));
  }
  std::stable_sort(records.activities.begin(), records.activities.end(),
                   [](const DeviceActivity& a, const DeviceActivity& b) { return a.begin < b.begin; });
  calls_.clear();
  spans_.clear();
  activities_.clear();
  return records;
}

}  // namespace trainyard::nn
