// The parameter table. Every option of the program is declared once, in the source of the options that it sets, and the
// command line, the config file, validation, --help, --dump_config and the flag reference all come from that
// declaration.
//
//   void declare_flags(core::FlagTable& table) {
//     table.integer("batch_size", 0, "images a device and step; 0: the model's default").group("Run");
//     table.choice("optimizer", "sgd", {"momentum", "sgd"}, "momentum is Nesterov momentum").group("Training");
//   }
//   core::FlagValues values = core::parse_flags(table, arguments);
//   int64_t batch = values.integer("batch_size");
//
// Precedence: command line over --config file over default.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace trainyard::core {

enum class FlagKind { kBoolean, kInteger, kReal, kText, kChoice, kList };

// How the program treats a flag that is given.
enum class Disposition {
  kImplemented,  // its documented meaning
  kTranslated,   // has a counterpart here; `note` says which
  kWarned,       // only another runtime had it: accepted, one warning; `note` says what replaces it
};
// Returns "boolean", "integer", "float", "string", "enum" or "list".
[[nodiscard]] std::string_view flag_kind_name(FlagKind kind);

// A value; std::monostate means that it is not set (Python's None).
using FlagValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<std::string>>;

struct FlagSpec {
  std::string name{};
  FlagKind kind = FlagKind::kText;
  FlagValue default_value{};
  std::optional<double> lower_bound{}, upper_bound{};  // inclusive, unless the next two say otherwise
  bool above_lower = false, below_upper = false;       // the bound itself is refused, too
  std::vector<std::string> choices{};                  // for kChoice
  std::vector<std::string> words{};                    // words that an integer flag accepts instead of a number: "auto"
  std::map<std::string, std::string> former_values{};  // values of kChoice in earlier versions -> their names of today
  std::string group_name{};
  std::string help{};
  Disposition disposition = Disposition::kImplemented;
  std::string note{};                // explains the disposition
  std::optional<char> short_name{};  // "-b 32", "-b=32" and "-b32" are then "--batch_size=32"
  std::string
      automatic_rule{};  // when set: what the program does while the flag is not given, whatever its default says

  FlagSpec& group(std::string value);
  FlagSpec& bounds(std::optional<double> lower, std::optional<double> upper = {});
  // Sets a bound that the value must not reach. Call it after bounds(), whose other bound stays.
  FlagSpec& above(double lower);
  FlagSpec& below(double upper);
  // Lets an integer flag accept this word instead of a number. Readers of the flag call FlagValues::is_word() first.
  FlagSpec& word(std::string value);
  // Gives the flag a short form. When two flags have the same one, parsing throws kInternal.
  FlagSpec& short_form(char letter);
  // Says that the default means a choice that is made when the program runs ("gpu if there is one, else cpu").
  FlagSpec& automatic(std::string rule);
  FlagSpec& translated(std::string what_it_sets);
  FlagSpec& warned(std::string what_replaces_it);
  // Lets a choice be written as earlier versions called it. It becomes `now`, with a line in the log.
  FlagSpec& former_value(std::string former, std::string now);
};

// The declarations, in their order. References stay valid. A name that is declared twice throws kInternal.
class FlagTable {
 public:
  FlagSpec& boolean(std::string name, std::optional<bool> default_value, std::string help);
  FlagSpec& integer(std::string name, std::optional<int64_t> default_value, std::string help);
  FlagSpec& real(std::string name, std::optional<double> default_value, std::string help);
  FlagSpec& text(std::string name, std::optional<std::string> default_value, std::string help);
  FlagSpec& choice(std::string name, std::string default_value, std::vector<std::string> choices, std::string help);
  FlagSpec& list(std::string name, std::string help);  // comma separated; default empty
  // Adds a declaration as it is.
  FlagSpec& add(FlagSpec spec);

  // Gives a declared flag another default, parsed as its kind. For a command that has friendlier defaults than another
  // one over the same flags. Throws kInternal for a name that is not declared, kInvalidArgument for a value outside of
  // the flag's bounds or choices.
  void set_default(std::string_view name, std::string_view text);

  // Does the same for a default that is chosen when the program runs. Readers still get the declared value.
  void set_automatic(std::string_view name, std::string rule);

  // Makes a choice of a declared flag a former value of another choice. Throws kInternal for a name that is not
  // declared.
  void rename_value(std::string_view name, const std::string& former, const std::string& now);

  // Says which flag is meant by a name that other programs use for it: the error of an unknown flag `wrong` then
  // suggests `right`. Throws kInternal for a `right` that is not declared, or a `wrong` that is.
  void suggest(std::string wrong, std::string right);
  // Returns the flag that may be meant by an unknown name: from suggest(), else the nearest name. Empty when no name is
  // near.
  [[nodiscard]] std::string suggestion(std::string_view unknown) const;

  // Lets a command line write names with dashes, too: --batch-size as well as --batch_size.
  void take_dashes() { takes_dashes_ = true; }
  bool takes_dashes() const { return takes_dashes_; }

  const FlagSpec* find(std::string_view name) const;
  // Returns the flag with this short form, or null when there is none. Throws kInternal when there are two.
  [[nodiscard]] const FlagSpec* find_short(char letter) const;
  const std::deque<FlagSpec>& all() const { return flags_; }
  // Returns all names, in the order of declaration.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  std::deque<FlagSpec> flags_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, std::string, std::less<>> suggestions_;
  bool takes_dashes_ = false;
};

enum class FlagSource { kDefault, kFile, kCommandLine, kProgram };

// A value for each flag of a table, which must outlive it. Reading a name that the table lacks, or reading it as
// another kind, throws kInternal.
class FlagValues {
 public:
  explicit FlagValues(const FlagTable& table);

  bool boolean(std::string_view name) const;
  int64_t integer(std::string_view name) const;  // throws kInternal when it is not set and has no default
  double real(std::string_view name) const;
  std::string text(std::string_view name) const;  // kText and kChoice; "" when not set
  std::vector<std::string> list(std::string_view name) const;
  std::optional<bool> optional_boolean(std::string_view name) const;
  std::optional<int64_t> optional_integer(std::string_view name) const;
  std::optional<double> optional_real(std::string_view name) const;
  std::optional<std::string> optional_text(std::string_view name) const;
  const FlagValue& value(std::string_view name) const;

  // Returns true when the command line, a file or the program has set the flag, to whatever value.
  [[nodiscard]] bool given(std::string_view name) const { return source(name) != FlagSource::kDefault; }
  FlagSource source(std::string_view name) const;
  // Returns true when an integer is one of its words, which value() then holds as text, instead of a number.
  [[nodiscard]] bool is_word(std::string_view name) const;
  // Returns true when the flag is set to something other than its default.
  [[nodiscard]] bool changed(std::string_view name) const;

  // Parses `text` as the flag's kind, checks bounds and choices, and sets the flag. A value from a weaker source than
  // the current one (a file after the command line) is ignored. Throws kInvalidArgument with the texts of
  // parse_flag_value(); an unknown name suggests the nearest one.
  void set(std::string_view name, std::string_view text, FlagSource source);

  // Sets the flag back to its default, as if it had never been given.
  void reset(std::string_view name);

  const FlagTable& table() const { return *table_; }

 private:
  struct Slot {
    FlagValue value{};
    FlagSource source = FlagSource::kDefault;
  };
  const Slot& slot(std::string_view name) const;

  const FlagTable* table_;
  std::map<std::string, Slot, std::less<>> slots_;
};

// What happens when a command line gives one flag twice, with different values.
enum class Repeats {
  kLastStands,
  kRefused,  // throws kInvalidArgument: the user probably forgot to remove one of the two
};

// Reads a command line. Boolean flags take --x, --nox, --x=true|false|1|0|yes|no|t|f|y|n|on|off; others take --x=value
// or --x value. One dash does as well as two, and is needed before a short form; `--` ends the flags. A positional
// argument is an error: "Received unknown positional arguments: ...". When the table has a flag `config` and it is
// given, that file is read here, and the command line replaces what it says.
FlagValues parse_flags(const FlagTable& table, const std::vector<std::string>& arguments,
                       Repeats repeats = Repeats::kLastStands);
// Does the same for a command that takes positional arguments, which go to `positional`.
FlagValues parse_flags(const FlagTable& table, const std::vector<std::string>& arguments,
                       std::vector<std::string>& positional, Repeats repeats = Repeats::kLastStands);

// Adds the flat mapping `flag: value` of a YAML file; lists may be sequences. Errors name file and line.
void read_config_file(const std::string& path, FlagValues& values);

// Returns the values that were given as YAML that read_config_file() accepts. Read with the same defaults, it gives the
// same values again, and the same flags are given. The other flags are comments with their defaults, unless
// `only_given`. `config` and `dump_config` are left out.
[[nodiscard]] std::string dump_config(const FlagValues& values, bool only_given = false);

// Returns one warning for each kWarned flag that is given. One that a file sets to its default is not warned of.
[[nodiscard]] std::vector<std::string> flag_warnings(const FlagValues& values);

// Returns the help by groups, for a terminal of `width` columns.
[[nodiscard]] std::string help_text(const FlagTable& table, size_t width = 100);
// Returns the help of some flags alone, in the order of `names`, without groups. Throws kInternal for a name that is
// not declared.
[[nodiscard]] std::string help_text(const FlagTable& table, const std::vector<std::string>& names, size_t width = 100);
// Another table of the same flags. help_markdown() lists its defaults next to the first table's where they differ.
struct OtherDefaults {
  std::string command{};  // "trainyard train"
  const FlagTable* table = nullptr;
};
std::string help_markdown(const FlagTable& table, const OtherDefaults& other = {});

}  // namespace trainyard::core
