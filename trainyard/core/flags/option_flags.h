// Flags that set the members of a struct. Each is declared once: its name, the member and what it means. The kind of
// the flag is the member's type, its default what the member has in a new struct; declaring and reading follow.
//
//   struct AverageOptions {
//     std::optional<double> decay{};
//     bool warmup = false;
//   };
//
//   core::OptionFlags<AverageOptions> average_flags() {
//     core::OptionFlags<AverageOptions> flags("Averaged weights");
//     flags.add("ema_decay", &AverageOptions::decay, "decay of a moving average; unset: none").bounds(0).below(1);
//     flags.add("ema_warmup", &AverageOptions::warmup, "a smaller decay at first");
//     return flags;
//   }
//
//   core::flags_of<average_flags>().declare(table);
//   const AverageOptions options = core::flags_of<average_flags>().read(values);
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trainyard/core/flags/flags.h"

namespace trainyard::core {

namespace option_flags_internal {

template <typename T>
struct Unwrapped {
  using Type = T;
  static constexpr bool kOptional = false;
};
template <typename T>
struct Unwrapped<std::optional<T>> {
  using Type = T;
  static constexpr bool kOptional = true;
};

// Returns the value of a flag of this member's type; empty where it is not set.
template <typename T>
std::optional<T> value_of(const FlagValues& values, const std::string& name) {
  if constexpr (std::is_same_v<T, bool>) {
    return values.optional_boolean(name);
  } else if constexpr (std::integral<T>) {
    const auto value = values.optional_integer(name);
    return value ? std::optional<T>(static_cast<T>(*value)) : std::nullopt;
  } else if constexpr (std::floating_point<T>) {
    const auto value = values.optional_real(name);
    return value ? std::optional<T>(static_cast<T>(*value)) : std::nullopt;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return values.optional_text(name);
  } else {
    return values.list(name);
  }
}

}  // namespace option_flags_internal

// A member is a pointer to a member of Options, or a function from Options& to a reference, for members of members.
template <typename Options>
class OptionFlags {
 public:
  using Reader = std::function<void(const FlagValues&, Options&)>;

  explicit OptionFlags(std::string group) : group_(std::move(group)) {}

  // Puts the flags that are declared from now on into another group of the help.
  void group(std::string name) { group_ = std::move(name); }

  // Declares a flag of the member's type: bool, an integer, a floating point number, std::string, std::optional of one
  // of these, or std::vector<std::string>. A flag that is not set leaves the member as it is. An empty text is "not
  // set".
  template <typename Member>
  FlagSpec& add(const std::string& name, Member member, std::string help) {
    using Value = std::remove_cvref_t<std::invoke_result_t<Member, Options&>>;
    using Wrapped = option_flags_internal::Unwrapped<Value>;
    using T = typename Wrapped::Type;
    readers_.push_back([name, member](const FlagValues& values, Options& options) {
      if (auto value = option_flags_internal::value_of<T>(values, name)) {
        std::invoke(member, options) = std::move(*value);
      }
    });
    Options defaults{};
    const auto default_of = [&]() -> std::optional<T> { return std::invoke(member, defaults); };
    if constexpr (std::is_same_v<T, bool>) {
      return table_.boolean(name, default_of(), std::move(help)).group(group_);
    } else if constexpr (std::integral<T>) {
      return table_.integer(name, default_of(), std::move(help)).group(group_);
    } else if constexpr (std::floating_point<T>) {
      return table_.real(name, default_of(), std::move(help)).group(group_);
    } else if constexpr (std::is_same_v<T, std::string>) {
      auto text = default_of();
      if (text && text->empty()) text.reset();
      return table_.text(name, std::move(text), std::move(help)).group(group_);
    } else {
      static_assert(std::is_same_v<T, std::vector<std::string>>,
                    "a flag has no such type: add it to table(), and read "
                    "it in also()");
      return table_.list(name, std::move(help)).group(group_);
    }
  }

  // Lets a flag that table() declares set its member where it is given, whatever the default that its declaration
  // shows: for members that stay unset unless a user sets them. Returns the declaration, which is in the group of the
  // others now.
  template <typename Member>
  FlagSpec& given(Member member, FlagSpec& spec) {
    using T =
        typename option_flags_internal::Unwrapped<std::remove_cvref_t<std::invoke_result_t<Member, Options&>>>::Type;
    readers_.push_back([name = spec.name, member](const FlagValues& values, Options& options) {
      if (!values.given(name)) return;
      if (auto value = option_flags_internal::value_of<T>(values, name)) {
        std::invoke(member, options) = std::move(*value);
      }
    });
    return spec.group(group_);
  }

  // Declares a choice among words, which the member holds as text.
  template <typename Member>
  FlagSpec& choice(const std::string& name, Member member, const std::vector<std::string>& words,
                   const std::string& help) {
    readers_.push_back([name, member](const FlagValues& values, Options& options) {
      std::invoke(member, options) = values.text(name);
    });
    Options defaults{};
    return table_.choice(name, std::invoke(member, defaults), words, help).group(group_);
  }
  // Declares a choice among words that stand for values of the member. The member's default is one of them.
  template <typename Member, typename Value>
  FlagSpec& choice(const std::string& name, Member member, std::vector<std::pair<std::string, Value>> words,
                   std::string help) {
    Options defaults{};
    std::string default_word;
    std::vector<std::string> all;
    for (const auto& [word, value] : words) {
      all.push_back(word);
      if (default_word.empty() && std::invoke(member, defaults) == value) default_word = word;
    }
    readers_.push_back([name, member, words = std::move(words)](const FlagValues& values, Options& options) {
      for (const auto& [word, value] : words) {
        if (word == values.text(name)) std::invoke(member, options) = value;
      }
    });
    return table_.choice(name, std::move(default_word), std::move(all), std::move(help)).group(group_);
  }

  // Calls `read` behind the readers of the flags that are declared before it, for what a member's type does not say:
  // units, flags that depend on each other, errors.
  void also(Reader read) { readers_.push_back(std::move(read)); }

  // Returns the declarations, for flags without a member. They are in no group unless they name one.
  FlagTable& table() { return table_; }
  const std::string& group() const { return group_; }

  // Declares all flags in another table, in the order in which they were added here.
  void declare(FlagTable& table) const {
    for (const FlagSpec& spec : table_.all()) table.add(spec);
  }
  // Returns the options that `values` say, whose table has all flags of this one.
  [[nodiscard]] Options read(const FlagValues& values) const {
    Options options{};
    read(values, options);
    return options;
  }
  // Does the same with options that others read from, too: members without a flag here stay as they are.
  void read(const FlagValues& values, Options& options) const {
    for (const Reader& read_next : readers_) read_next(values, options);
  }

 private:
  std::string group_;
  FlagTable table_;
  std::vector<Reader> readers_;
};

// Returns the flags that `make` declares, which is called once. Any thread.
template <auto make>
const auto& flags_of() {
  static const auto flags = make();
  return flags;
}

}  // namespace trainyard::core
