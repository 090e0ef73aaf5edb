#include "trainyard/cli/tune_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/flags/yaml_file.h"
#include "trainyard/core/random/random.h"

namespace trainyard::cli {
namespace {

using Kind = TuneRange::Kind;

constexpr std::array<std::pair<const char*, Kind>, 5> kKinds = {{{"uniform", Kind::kUniform},
                                                                 {"loguniform", Kind::kLogUniform},
                                                                 {"int", Kind::kInteger},
                                                                 {"logint", Kind::kLogInteger},
                                                                 {"choice", Kind::kChoice}}};
constexpr std::array<std::pair<const char*, TuneSearch>, 3> kSearches = {
    {{"random", TuneSearch::kRandom}, {"halving", TuneSearch::kHalving}, {"asha", TuneSearch::kAsha}}};
// What the search sets itself, or what does not train.
constexpr std::array kOwnFlags = {"train_dir",         "existing_run", "num_epochs",   "num_batches",
                                  "stop_after_epochs", "eval",         "forward_only", "plot_schedule",
                                  "describe_input",    "dump_config",  "help",         "summary_verbosity"};
constexpr int64_t kMostTrials = 100'000;

template <typename Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& entry : table) names.emplace_back(entry.first);
  return names;
}

// Reads one file; `place()` says where a node is.
class TuneReader {
 public:
  TuneReader(std::string path, const core::FlagTable& table) : path_(std::move(path)), table_(table) {}

  TuneFile read() {
    const YAML::Node root = core::load_yaml_file(path_, "tune file");
    if (!root.IsMap()) refuse(root, "a tune file is a mapping", "keys such as trials, epochs, flags and ranges");
    const std::map<std::string, std::function<void(const YAML::Node&)>> readers = {
        {"search", [this](const YAML::Node& node) { read_search(node); }},
        {"trials", [this](const YAML::Node& node) { file_.trials = integer(node, "trials", 1, kMostTrials); }},
        {"epochs", [this](const YAML::Node& node) { file_.epochs = above_zero(node, "epochs"); }},
        {"min_epochs", [this](const YAML::Node& node) { file_.min_epochs = above_zero(node, "min_epochs"); }},
        {"eta", [this](const YAML::Node& node) { file_.eta = integer(node, "eta", 2, 1000); }},
        {"seed",
         [this](const YAML::Node& node) {
           file_.seed = static_cast<uint64_t>(integer(node, "seed", 0, int64_t{1} << 53));
         }},
        {"metric", [this](const YAML::Node& node) { file_.metric = text(node, "metric"); }},
        {"goal", [this](const YAML::Node& node) { read_goal(node); }},
        {"flags", [this](const YAML::Node& node) { read_flags(node); }},
        {"ranges", [this](const YAML::Node& node) { read_ranges(node); }}};
    std::set<std::string> given;
    each_entry(root, "tune file", [&](const std::string& key, const YAML::Node& at, const YAML::Node& value) {
      const auto reader = readers.find(key);
      if (reader == readers.end()) {
        const std::string nearest = core::nearest_name(key, names_of(readers));
        const bool flag = table_.find(key) != nullptr;
        refuse(at, fmt::format("a tune file has no key '{}'", key),
               fmt::format("{}", fmt::join(names_of(readers), ", ")),
               flag              ? "put the flag below `flags:`, or its range below `ranges:`"
               : nearest.empty() ? ""
                                 : fmt::format("did you mean {}?", nearest));
      }
      reader->second(value);
      given.insert(key);
    });
    if (file_.ranges.empty()) refuse(root, "a tune file has no ranges: nothing is searched", "ranges: {FLAG: RANGE}");
    if (!given.contains("goal")) file_.highest = file_.metric.find("loss") == std::string::npos;
    check_halving(root, given);
    return file_;
  }

 private:
  [[noreturn]] void refuse(const YAML::Node& at, std::string problem, std::string expected = "",
                           std::string remedy = "") const {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = std::move(problem),
                                                          .where = core::yaml_place(path_, at.Mark()),
                                                          .expected = std::move(expected),
                                                          .remedy = std::move(remedy)});
  }

  template <typename Visit>
  void each_entry(const YAML::Node& map, const std::string& what, Visit visit) const {
    std::map<std::string, int> seen;  // with its line
    for (const auto& entry : map) {
      if (!entry.first.IsScalar()) refuse(entry.first, fmt::format("a key of {} is not a name", what));
      const std::string key = entry.first.Scalar();
      const auto [first, fresh] = seen.emplace(key, entry.first.Mark().line + 1);
      if (!fresh) refuse(entry.first, fmt::format("{} is given twice, first in line {}", key, first->second));
      visit(key, entry.first, entry.second);
    }
  }

  std::string text(const YAML::Node& node, const std::string& key) const {
    if (!node.IsScalar() || node.Scalar().empty()) refuse(node, fmt::format("{} takes one value", key));
    return node.Scalar();
  }

  double number(const YAML::Node& node, const std::string& key) const {
    const std::string word = text(node, key);
    const core::FlagSpec spec{.name = key, .kind = core::FlagKind::kReal};
    try {
      return std::get<double>(core::parse_flag_value(spec, word));
    } catch (const core::Error&) {
      refuse(node, fmt::format("{} is not a finite number: {}", key, word));
    }
  }

  double above_zero(const YAML::Node& node, const std::string& key) const {
    const double value = number(node, key);
    if (!(value > 0 && value <= 1e9)) refuse(node, fmt::format("{} is out of range", key), "above 0, at most 1e9");
    return value;
  }

  int64_t integer(const YAML::Node& node, const std::string& key, int64_t least, int64_t most) const {
    const double value = number(node, key);
    if (value != std::floor(value) || value < static_cast<double>(least) || value > static_cast<double>(most)) {
      refuse(node, fmt::format("{} is out of range", key), fmt::format("an integer of {} to {}", least, most));
    }
    return static_cast<int64_t>(value);
  }

  void read_search(const YAML::Node& node) {
    const std::string name = text(node, "search");
    for (const auto& [known, search] : kSearches) {
      if (name == known) {
        file_.search = search;
        return;
      }
    }
    refuse(node, fmt::format("there is no search '{}'", name), fmt::format("{}", fmt::join(names_of(kSearches), ", ")));
  }

  void read_goal(const YAML::Node& node) {
    const std::string goal = text(node, "goal");
    if (goal != "highest" && goal != "lowest") {
      refuse(node, fmt::format("there is no goal '{}'", goal), "highest or lowest");
    }
    file_.highest = goal == "highest";
  }

  // Throws where there is no such flag, where the search sets it itself, and where it is given twice.
  void check_flag(const std::string& name, const YAML::Node& at) {
    if (std::find(kOwnFlags.begin(), kOwnFlags.end(), name) != kOwnFlags.end()) {
      refuse(at, fmt::format("--{} is set by the search itself, or has no place in a trial", name), "",
             "leave it out; `epochs:` is the length of a trial");
    }
    if (table_.find(name) == nullptr) {
      const std::string meant = table_.suggestion(name);
      refuse(at, fmt::format("there is no flag {}", name), "a flag of `trainyard train`",
             meant.empty() ? "" : fmt::format("did you mean {}?", meant));
    }
    if (!flags_.insert(name).second) refuse(at, fmt::format("{} has a value in `flags:` and a range", name));
  }

  // Throws, with the line, where the flag does not take this value.
  void check_value(const std::string& flag, const std::string& value, const YAML::Node& at) const {
    try {
      core::FlagValues(table_).set(flag, value, core::FlagSource::kFile);
    } catch (const core::Error& error) {
      throw error.in(core::yaml_place(path_, at.Mark()));
    }
  }

  void read_flags(const YAML::Node& node) {
    if (!node.IsMap()) refuse(node, "flags is a mapping of `flag: value`");
    each_entry(node, "flags", [&](const std::string& name, const YAML::Node& at, const YAML::Node& value) {
      check_flag(name, at);
      std::string joined;
      if (value.IsSequence()) {
        for (const YAML::Node& element : value) joined += (joined.empty() ? "" : ",") + text(element, name);
      } else if (value.IsScalar()) {
        joined = value.Scalar();
      } else {
        refuse(value, fmt::format("flag {} takes one value", name), "",
               "ranges such as {uniform: [0, 1]} belong below `ranges:`");
      }
      check_value(name, joined, value);
      file_.flags.emplace_back(name, joined);
    });
  }

  void read_ranges(const YAML::Node& node) {
    if (!node.IsMap()) refuse(node, "ranges is a mapping of `flag: {KIND: [...]}`");
    each_entry(node, "ranges", [&](const std::string& name, const YAML::Node& at, const YAML::Node& value) {
      check_flag(name, at);
      file_.ranges.push_back(read_range(name, value));
    });
  }

  TuneRange read_range(const std::string& flag, const YAML::Node& node) const {
    const std::string kinds = fmt::format("one of {{{}: [...]}}", fmt::join(names_of(kKinds), ": [...]}, {"));
    if (!node.IsMap() || node.size() != 1 || !node.begin()->first.IsScalar()) {
      refuse(node, fmt::format("{} has no range", flag), kinds, "a flag with one value belongs below `flags:`");
    }
    const std::string kind = node.begin()->first.Scalar();
    const YAML::Node ends = node.begin()->second;
    const auto known = std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& each) { return kind == each.first; });
    if (known == kKinds.end()) refuse(node.begin()->first, fmt::format("there is no range '{}'", kind), kinds);
    TuneRange range{.flag = flag, .kind = known->second};
    if (!ends.IsSequence()) refuse(ends, fmt::format("the range of {} is not a list", flag), kinds);
    if (range.kind == Kind::kChoice) {
      for (const YAML::Node& choice : ends) {
        range.choices.push_back(text(choice, flag));
        check_value(flag, range.choices.back(), choice);
      }
      if (range.choices.empty()) refuse(ends, fmt::format("{} has no choices", flag));
      return range;
    }
    if (ends.size() != 2) refuse(ends, fmt::format("the range of {} has two ends", flag), "[LOW, HIGH]");
    range.low = number(ends[0], flag);
    range.high = number(ends[1], flag);
    if (!(range.low < range.high))
      refuse(ends, fmt::format("the range of {} is empty", flag), "[LOW, HIGH], low below high");
    if (range.logarithmic() && range.low <= 0) {
      refuse(ends, fmt::format("the range of {} is logarithmic and has no end at or below 0", flag), "LOW above 0");
    }
    const bool whole = range.kind == Kind::kInteger || range.kind == Kind::kLogInteger;
    if (whole && (range.low != std::floor(range.low) || range.high != std::floor(range.high) ||
                  std::abs(range.low) > 1e15 || std::abs(range.high) > 1e15)) {
      refuse(ends, fmt::format("the range of {} has ends that are no integers", flag));
    }
    for (const size_t end : {size_t{0}, size_t{1}}) check_value(flag, ends[end].Scalar(), ends[end]);
    const core::FlagKind takes = table_.find(flag)->kind;
    if (takes == core::FlagKind::kInteger && !whole) {
      refuse(node, fmt::format("{} takes integers", flag), "{int: [LOW, HIGH]}, {logint: ...} or {choice: ...}");
    }
    if (takes != core::FlagKind::kInteger && takes != core::FlagKind::kReal) {
      refuse(node, fmt::format("{} takes no numbers", flag), "{choice: [...]}");
    }
    return range;
  }

  void check_halving(const YAML::Node& root, const std::set<std::string>& given) {
    if (file_.search == TuneSearch::kRandom) {
      for (const char* key : {"min_epochs", "eta"}) {
        if (given.contains(key)) {
          refuse(root[key], fmt::format("{} is of the searches that end bad trials early", key), "",
                 "add `search: asha` or `search: halving`, or leave it out");
        }
      }
      return;
    }
    if (!given.contains("min_epochs")) file_.min_epochs = std::min(1.0, file_.epochs);
    if (file_.min_epochs > file_.epochs) {
      refuse(root["min_epochs"], "min_epochs is more than epochs", fmt::format("at most {:g}", file_.epochs));
    }
  }

  const std::string path_;
  const core::FlagTable& table_;
  TuneFile file_;
  std::set<std::string> flags_;  // that have a value or a range
};

// Returns the value with six digits, and with all of them where six would be outside of the range.
std::string real_text(const TuneRange& range, double value) {
  std::string text = fmt::format("{:.6g}", value);
  double rounded = 0;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  if (rounded >= range.low && rounded <= range.high) return text;
  return fmt::format("{}", std::clamp(value, range.low, range.high));
}

std::string drawn(const TuneRange& range, core::RandomStream& random) {
  const double part = random.uniform_double();
  const auto whole = [&](double value) {
    return std::to_string(static_cast<int64_t>(std::clamp(std::floor(value), range.low, range.high)));
  };
  switch (range.kind) {
    case Kind::kUniform:
      return real_text(range, range.low + part * (range.high - range.low));
    case Kind::kLogUniform:
      return real_text(range, range.low * std::pow(range.high / range.low, part));
    case Kind::kInteger:
      return whole(range.low + part * (range.high - range.low + 1));
    case Kind::kLogInteger:
      return whole(range.low * std::pow((range.high + 1) / range.low, part));
    case Kind::kChoice:
      return range.choices[static_cast<size_t>(random.below(range.choices.size()))];
  }
  return "";
}

}  // namespace

TuneFile read_tune_file(const std::string& path, const core::FlagTable& table) {
  return TuneReader(path, table).read();
}

FlagTexts trial_flags(const TuneFile& file, int64_t trial) {
  FlagTexts flags = file.flags;
  for (const TuneRange& range : file.ranges) {
    core::RandomStream random(file.seed, "tune/" + range.flag, {static_cast<uint64_t>(trial)});
    flags.emplace_back(range.flag, drawn(range, random));
  }
  return flags;
}

std::string search_text(const TuneFile& file) {
  std::string text = fmt::format("search {}, epochs {}, min_epochs {}, eta {}, seed {}, metric {}, {}\n",
                                 static_cast<int>(file.search), file.epochs, file.min_epochs, file.eta, file.seed,
                                 file.metric, file.highest ? "highest" : "lowest");
  FlagTexts lines = file.flags;
  for (const TuneRange& range : file.ranges) {
    lines.emplace_back(range.flag, fmt::format("{} {} {} {}", static_cast<int>(range.kind), range.low, range.high,
                                               fmt::join(range.choices, ", ")));
  }
  std::sort(lines.begin(), lines.end());  // their order changes nothing
  for (const auto& [name, value] : lines) text += fmt::format("{}: {}\n", name, value);
  return text;
}

}  // namespace trainyard::cli
