// The command line of a flag table. docs/design/flags.md says why it is not CLI11's.
#include <algorithm>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/flags/flags.h"

namespace trainyard::core {
namespace {

bool is_boolean(const FlagSpec* spec) {
  return spec != nullptr && spec->kind == FlagKind::kBoolean;
}

// The boolean flag that "nox" switches off.
const FlagSpec* negated_flag(const FlagTable& table, std::string_view name) {
  if (!name.starts_with("no") || table.find(name) != nullptr) return nullptr;
  const FlagSpec* spec = table.find(name.substr(2));
  return is_boolean(spec) ? spec : nullptr;
}

// "name" and "=value" parts of an argument without its dashes.
struct Argument {
  std::string name;
  std::optional<std::string_view> value;
  std::string_view whole{};  // "b32" of "-b32": the name, if it is no short form with its value
};

// "-b", "-b=32" or "-b32", where the whole name is no flag, and switches none off.
std::optional<Argument> split_short(const FlagTable& table, std::string_view argument) {
  if (!argument.starts_with('-') || argument.size() < 2 || argument[1] == '-') return std::nullopt;
  argument.remove_prefix(1);
  const std::string_view name = argument.substr(0, argument.find('='));
  if (table.find(name) != nullptr || negated_flag(table, name) != nullptr) return std::nullopt;
  const FlagSpec* const spec = table.find_short(argument[0]);
  if (spec == nullptr) return std::nullopt;
  if (argument.size() == 1) return Argument{spec->name, std::nullopt};
  if (argument[1] == '=') return Argument{spec->name, argument.substr(2)};
  return Argument{spec->name, argument.substr(1), name};
}

// Nothing when the argument is no flag: positional, "-" or "--".
std::optional<Argument> split_argument(const FlagTable& table, std::string_view argument) {
  if (auto short_form = split_short(table, argument)) return short_form;
  if (!argument.starts_with('-')) return std::nullopt;
  argument.remove_prefix(argument.starts_with("--") ? 2 : 1);
  if (argument.empty()) return std::nullopt;
  const size_t equals = argument.find('=');
  Argument split{std::string(argument.substr(0, equals)), std::nullopt};
  if (table.takes_dashes()) std::replace(split.name.begin(), split.name.end(), '-', '_');
  if (equals != std::string_view::npos) split.value = argument.substr(equals + 1);
  return split;
}

class ArgumentParser {
 public:
  ArgumentParser(const FlagTable& table, const std::vector<std::string>& arguments, Repeats repeats)
      : table_(table), arguments_(arguments), repeats_(repeats), values_(table) {}

  FlagValues run() {
    for (next_ = 0; next_ < arguments_.size(); ++next_) {
      if (arguments_[next_] == "--") {
        positional_.insert(positional_.end(), arguments_.begin() + static_cast<std::ptrdiff_t>(next_) + 1,
                           arguments_.end());
        break;
      }
      if (const auto argument = split_argument(table_, arguments_[next_])) {
        read(*argument);
      } else {
        positional_.push_back(arguments_[next_]);
        if (positional_remedy_.empty() && next_ > 0) positional_remedy_ = remedy_after(arguments_[next_ - 1]);
      }
    }
    return std::move(values_);
  }

  void refuse_positional() const {
    if (positional_.empty()) return;
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("Received unknown positional arguments: {}", quoted_list(positional_)),
                 .remedy = positional_remedy_});
  }
  std::vector<std::string>& positional() { return positional_; }

 private:
  void read(const Argument& argument) {
    if (const FlagSpec* negated = negated_flag(table_, argument.name)) {
      if (argument.value) {
        throw Error(ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("Flag --{} does not take a value", argument.name),
                     .remedy = fmt::format("write --{}={}", negated->name, *argument.value)});
      }
      set(negated->name, "false");
      return;
    }
    if (!argument.whole.empty()) refuse_long_name(argument);
    const FlagSpec* spec = table_.find(argument.name);
    if (argument.value) {
      set(argument.name, *argument.value);
    } else if (spec == nullptr || is_boolean(spec)) {
      set(argument.name, "true");  // or the error of an unknown flag
    } else {
      set(argument.name, following_value(spec->name));
    }
  }

  // Throws the error of an unknown flag for "-batchsize=32", whose "atchsize=32" is no value of -b.
  void refuse_long_name(const Argument& argument) {
    try {
      static_cast<void>(parse_flag_value(*table_.find(argument.name), *argument.value));
    } catch (const Error&) {
      if (!table_.suggestion(argument.whole).empty()) values_.set(argument.whole, "", FlagSource::kCommandLine);
    }
  }

  void set(std::string_view name, std::string_view text) {
    std::optional<FlagValue> before;
    if (table_.find(name) != nullptr && values_.given(name)) before = values_.value(name);
    values_.set(name, text, FlagSource::kCommandLine);
    if (repeats_ == Repeats::kLastStands || !before || *before == values_.value(name)) return;
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("--{} is given twice with different values", name),
                 .actual = fmt::format("{} and {}", format_flag_value(*before), format_flag_value(values_.value(name))),
                 .remedy = "leave one of them out"});
  }

  // The argument after the flag. An argument that names a flag means that the value is missing: taking it would
  // silently lose that flag and set this one to nonsense.
  const std::string& following_value(const std::string& name) {
    if (next_ + 1 == arguments_.size()) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("Missing value for flag --{}", name));
    }
    const std::string& value = arguments_[next_ + 1];
    const auto argument = split_argument(table_, value);
    if (argument && (table_.find(argument->name) != nullptr || negated_flag(table_, argument->name) != nullptr)) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = fmt::format("Missing value for flag --{}", name),
                   .actual = fmt::format("the flag {}", value),
                   .remedy = fmt::format("write --{}={} if that is its value", name, value)});
    }
    ++next_;
    return value;
  }

  // "--distortions False" is the usual reason of a positional argument.
  std::string remedy_after(std::string_view before) const {
    const auto argument = split_argument(table_, before);
    if (!argument || argument->value || !is_boolean(table_.find(argument->name))) return "";
    return fmt::format("a boolean is written --{0}, --no{0} or --{0}=false", argument->name);
  }

  const FlagTable& table_;
  const std::vector<std::string>& arguments_;
  Repeats repeats_;
  size_t next_ = 0;
  FlagValues values_;
  std::vector<std::string> positional_;
  std::string positional_remedy_;
};

}  // namespace

FlagValues parse_flags(const FlagTable& table, const std::vector<std::string>& arguments, Repeats repeats) {
  ArgumentParser parser(table, arguments, repeats);
  FlagValues values = parser.run();
  parser.refuse_positional();
  if (table.find("config") != nullptr && !values.text("config").empty()) {
    read_config_file(values.text("config"), values);
  }
  return values;
}

FlagValues parse_flags(const FlagTable& table, const std::vector<std::string>& arguments,
                       std::vector<std::string>& positional, Repeats repeats) {
  ArgumentParser parser(table, arguments, repeats);
  FlagValues values = parser.run();
  positional = parser.positional();
  return values;
}

std::vector<std::string> flag_warnings(const FlagValues& values) {
  std::vector<std::string> warnings;
  for (const FlagSpec& spec : values.table().all()) {
    if (spec.disposition != Disposition::kWarned) continue;
    // A file may repeat the defaults of flags; only what differs from them asks for something there.
    const bool from_file = values.source(spec.name) == FlagSource::kFile;
    if (from_file ? values.changed(spec.name) : values.given(spec.name)) {
      warnings.push_back(fmt::format("--{} has no effect here: {}", spec.name, spec.note));
    }
  }
  return warnings;
}

}  // namespace trainyard::core
