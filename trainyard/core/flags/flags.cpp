#include "trainyard/core/flags/flags.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/enum_name.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/flags/flag_value.h"

namespace trainyard::core {
namespace {

template <typename T>
FlagValue value_or_unset(std::optional<T> value) {
  if (!value) return std::monostate{};
  return FlagValue(std::move(*value));
}

Error misuse(std::string problem) {
  return {ErrorCode::kInternal, std::move(problem)};
}

// The value as T; nothing when it is not set. Another kind is a mistake of the program, not of the user.
template <typename T>
std::optional<T> value_as(std::string_view name, const FlagValue& value) {
  if (std::holds_alternative<std::monostate>(value)) return std::nullopt;
  if (const T* typed = std::get_if<T>(&value)) return *typed;
  throw misuse(fmt::format("flag {} is read as another kind than it was declared", name));
}

// Returns what an unknown flag may have been meant to be. "nodistortion" is a slip of --nodistortions: --distortions,
// whose name is the nearest one, says the opposite. Files have no such names.
std::string meant_flag(const FlagTable& table, std::string_view unknown, FlagSource source) {
  std::string plain = table.suggestion(unknown);
  if (source != FlagSource::kCommandLine || !unknown.starts_with("no")) return plain;
  std::vector<std::string> names;
  if (!plain.empty()) names.push_back(std::move(plain));
  for (const FlagSpec& spec : table.all()) {
    if (spec.kind == FlagKind::kBoolean) names.push_back("no" + spec.name);
  }
  return nearest_name(unknown, names);
}

template <typename T>
T required(std::string_view name, std::optional<T> value) {
  if (!value) throw misuse(fmt::format("flag {} is read without a value", name));
  return std::move(*value);
}

}  // namespace

std::string_view flag_kind_name(FlagKind kind) {
  return enum_name<FlagKind::kList>(kind, {"boolean", "integer", "float", "string", "enum", "list"});
}

FlagSpec& FlagSpec::group(std::string value) {
  group_name = std::move(value);
  return *this;
}

FlagSpec& FlagSpec::bounds(std::optional<double> lower, std::optional<double> upper) {
  lower_bound = lower;
  upper_bound = upper;
  return *this;
}

FlagSpec& FlagSpec::above(double lower) {
  lower_bound = lower;
  above_lower = true;
  return *this;
}

FlagSpec& FlagSpec::below(double upper) {
  upper_bound = upper;
  below_upper = true;
  return *this;
}

FlagSpec& FlagSpec::word(std::string value) {
  words.push_back(std::move(value));
  return *this;
}

FlagSpec& FlagSpec::short_form(char letter) {
  short_name = letter;
  return *this;
}

FlagSpec& FlagSpec::automatic(std::string rule) {
  automatic_rule = std::move(rule);
  return *this;
}

FlagSpec& FlagSpec::translated(std::string what_it_sets) {
  disposition = Disposition::kTranslated;
  note = std::move(what_it_sets);
  return *this;
}

FlagSpec& FlagSpec::warned(std::string what_replaces_it) {
  disposition = Disposition::kWarned;
  note = std::move(what_replaces_it);
  return *this;
}

FlagSpec& FlagSpec::former_value(std::string former, std::string now) {
  former_values.emplace(std::move(former), std::move(now));
  return *this;
}

FlagSpec& FlagTable::add(FlagSpec spec) {
  if (!index_.emplace(spec.name, flags_.size()).second) {
    throw misuse(fmt::format("flag {} is declared twice", spec.name));
  }
  return flags_.emplace_back(std::move(spec));
}

FlagSpec& FlagTable::boolean(std::string name, std::optional<bool> default_value, std::string help) {
  return add({.name = std::move(name),
              .kind = FlagKind::kBoolean,
              .default_value = value_or_unset(default_value),
              .help = std::move(help)});
}

FlagSpec& FlagTable::integer(std::string name, std::optional<int64_t> default_value, std::string help) {
  return add({.name = std::move(name),
              .kind = FlagKind::kInteger,
              .default_value = value_or_unset(default_value),
              .help = std::move(help)});
}

FlagSpec& FlagTable::real(std::string name, std::optional<double> default_value, std::string help) {
  return add({.name = std::move(name),
              .kind = FlagKind::kReal,
              .default_value = value_or_unset(default_value),
              .help = std::move(help)});
}

FlagSpec& FlagTable::text(std::string name, std::optional<std::string> default_value, std::string help) {
  return add({.name = std::move(name),
              .kind = FlagKind::kText,
              .default_value = value_or_unset(std::move(default_value)),
              .help = std::move(help)});
}

FlagSpec& FlagTable::choice(std::string name, std::string default_value, std::vector<std::string> choices,
                            std::string help) {
  FlagSpec& spec = add({.name = std::move(name),
                        .kind = FlagKind::kChoice,
                        .default_value = default_value,
                        .choices = std::move(choices),
                        .help = std::move(help)});
  parse_flag_value(spec, default_value);  // a default outside the choices is a mistake of the declaration
  return spec;
}

FlagSpec& FlagTable::list(std::string name, std::string help) {
  return add({.name = std::move(name),
              .kind = FlagKind::kList,
              .default_value = std::vector<std::string>{},
              .help = std::move(help)});
}

void FlagTable::set_default(std::string_view name, std::string_view text) {
  const auto found = index_.find(name);
  if (found == index_.end()) throw misuse(fmt::format("flag {} gets a default but is not declared", name));
  FlagSpec& spec = flags_[found->second];
  spec.default_value = parse_flag_value(spec, text);
  spec.automatic_rule.clear();
}

void FlagTable::set_automatic(std::string_view name, std::string rule) {
  const auto found = index_.find(name);
  if (found == index_.end()) throw misuse(fmt::format("flag {} gets a default but is not declared", name));
  flags_[found->second].automatic(std::move(rule));
}

void FlagTable::rename_value(std::string_view name, const std::string& former, const std::string& now) {
  const auto found = index_.find(name);
  if (found == index_.end()) throw misuse(fmt::format("flag {} gets another choice but is not declared", name));
  FlagSpec& spec = flags_[found->second];
  std::erase(spec.choices, former);
  spec.former_value(former, now);
}

void FlagTable::suggest(std::string wrong, std::string right) {
  if (find(right) == nullptr) throw misuse(fmt::format("flag {} is suggested but not declared", right));
  if (find(wrong) != nullptr)
    throw misuse(fmt::format("flag {} is declared, and {} is suggested for it", wrong, right));
  suggestions_.emplace(std::move(wrong), std::move(right));
}

std::string FlagTable::suggestion(std::string_view unknown) const {
  std::string name(unknown);
  std::replace(name.begin(), name.end(), '-', '_');
  if (const auto found = suggestions_.find(name); found != suggestions_.end()) return found->second;
  return nearest_name(name, names());
}

const FlagSpec* FlagTable::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &flags_[found->second];
}

const FlagSpec* FlagTable::find_short(char letter) const {
  const FlagSpec* found = nullptr;
  for (const FlagSpec& spec : flags_) {
    if (spec.short_name != letter) continue;
    if (found != nullptr) throw misuse(fmt::format("flags {} and {} both are -{}", found->name, spec.name, letter));
    found = &spec;
  }
  return found;
}

std::vector<std::string> FlagTable::names() const {
  std::vector<std::string> result;
  for (const FlagSpec& spec : flags_) result.push_back(spec.name);
  return result;
}

FlagValues::FlagValues(const FlagTable& table) : table_(&table) {
  for (const FlagSpec& spec : table.all()) slots_[spec.name].value = spec.default_value;
}

void FlagValues::reset(std::string_view name) {
  slot(name);
  slots_.find(name)->second = {.value = table_->find(name)->default_value};
}

const FlagValues::Slot& FlagValues::slot(std::string_view name) const {
  const auto found = slots_.find(name);
  if (found == slots_.end()) throw misuse(fmt::format("flag {} is read but not declared", name));
  return found->second;
}

bool FlagValues::is_word(std::string_view name) const {
  const Slot& held = slot(name);
  return table_->find(name)->kind == FlagKind::kInteger && std::holds_alternative<std::string>(held.value);
}

bool FlagValues::boolean(std::string_view name) const {
  return required(name, optional_boolean(name));
}

int64_t FlagValues::integer(std::string_view name) const {
  return required(name, optional_integer(name));
}

double FlagValues::real(std::string_view name) const {
  return required(name, optional_real(name));
}

std::string FlagValues::text(std::string_view name) const {
  return optional_text(name).value_or("");
}

std::vector<std::string> FlagValues::list(std::string_view name) const {
  return required(name, value_as<std::vector<std::string>>(name, slot(name).value));
}

std::optional<bool> FlagValues::optional_boolean(std::string_view name) const {
  return value_as<bool>(name, slot(name).value);
}

std::optional<int64_t> FlagValues::optional_integer(std::string_view name) const {
  return value_as<int64_t>(name, slot(name).value);
}

std::optional<double> FlagValues::optional_real(std::string_view name) const {
  return value_as<double>(name, slot(name).value);
}

std::optional<std::string> FlagValues::optional_text(std::string_view name) const {
  return value_as<std::string>(name, slot(name).value);
}

FlagSource FlagValues::source(std::string_view name) const {
  return slot(name).source;
}

bool FlagValues::changed(std::string_view name) const {
  return value(name) != table_->find(name)->default_value;
}

const FlagValue& FlagValues::value(std::string_view name) const {
  return slot(name).value;
}

void FlagValues::set(std::string_view name, std::string_view text, FlagSource source) {
  const FlagSpec* spec = table_->find(name);
  if (spec == nullptr) {
    const std::string meant = meant_flag(*table_, name, source);
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("Unknown flag '{}'", name),
                 .remedy = meant.empty() ? "see --help for all flags" : fmt::format("did you mean --{}?", meant)});
  }
  FlagValue value = parse_flag_value(*spec, text);
  Slot& slot = slots_.find(name)->second;
  if (source < slot.source) return;
  slot = {std::move(value), source};
}

}  // namespace trainyard::core
