// Scripts that let shells complete commands and flags. They hold what the flags' declarations say, and start no
// program.
#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/cli/command_description.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"

namespace trainyard::cli {
namespace {

using core::FlagKind;
using core::FlagSpec;

constexpr std::string_view kProgram = "trainyard";

std::string_view first_word(std::string_view text) {
  return text.substr(0, text.find(' '));
}

// Returns the different first words of the commands' names.
std::vector<std::string> first_words(std::span<const CommandDescription> commands) {
  std::vector<std::string> words;
  for (const CommandDescription& command : commands) {
    const std::string word(first_word(command.name));
    if (words.empty() || words.back() != word) words.push_back(word);
  }
  return words;
}

// Returns the commands below `word`: "show" and "verify" of "data".
std::vector<const CommandDescription*> below(std::span<const CommandDescription> commands, std::string_view word) {
  std::vector<const CommandDescription*> found;
  for (const CommandDescription& command : commands) {
    if (command.name != word && first_word(command.name) == word) found.push_back(&command);
  }
  return found;
}

std::string last_word(const CommandDescription& command) {
  return command.name.substr(command.name.rfind(' ') + 1);
}

// Returns the summary of a command, or of those below a word.
std::string summary_of(std::span<const CommandDescription> commands, std::string_view word) {
  std::vector<std::string> names;
  for (const CommandDescription& command : commands) {
    if (command.name == word) return command.summary;
    if (first_word(command.name) == word) names.push_back(last_word(command));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

bool is_folder_flag(const FlagSpec& flag) {
  return flag.name.ends_with("_dir") || flag.name == "dir";
}

bool is_number_flag(const FlagSpec& flag) {
  return flag.kind == FlagKind::kInteger || flag.kind == FlagKind::kReal;
}

// Returns the help up to its first sentence's end, and not longer than a line.
std::string short_help(const FlagSpec& flag) {
  constexpr size_t kLongest = 70;
  std::string text = flag.help.substr(0, flag.help.find(';'));
  if (text.size() <= kLongest) return text;
  const size_t blank = text.rfind(' ', kLongest);
  return text.substr(0, blank == std::string::npos ? kLongest : blank) + " ...";
}

// Returns the words that may be the flag's value; empty where any text may.
std::vector<std::string> values_of(const FlagSpec& flag) {
  return flag.kind == FlagKind::kChoice ? flag.choices : flag.words;
}

std::string escaped(std::string_view text, std::string_view special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

// Returns the template with `texts` in place of @1@, @2@ and so on.
std::string filled(std::string_view form, const std::vector<std::string>& texts) {
  std::string result;
  for (size_t at = 0; at < form.size();) {
    const bool place = form[at] == '@' && at + 2 < form.size() && form[at + 2] == '@' && form[at + 1] >= '1' &&
                       form[at + 1] <= '9' && static_cast<size_t>(form[at + 1] - '1') < texts.size();
    if (place) {
      result += texts[static_cast<size_t>(form[at + 1] - '1')];
      at += 3;
    } else {
      result += form[at++];
    }
  }
  return result;
}

// Returns the text in single quotes, for bash and zsh.
std::string single_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string bash_script(std::span<const CommandDescription> commands) {
  std::string flags, values, folders, subcommands;
  for (const CommandDescription& command : commands) {
    std::vector<std::string> words, of_folders, of_numbers;
    for (const FlagSpec& flag : command.flags.all()) {
      const bool boolean = flag.kind == FlagKind::kBoolean;
      words.push_back("--" + flag.name + (boolean ? "" : "="));
      if (boolean && flag.name != "help") words.push_back("--no" + flag.name);
      if (is_folder_flag(flag)) of_folders.push_back(fmt::format("'{} --{}'", command.name, flag.name));
      if (const std::vector<std::string> own = values_of(flag); own.empty()) {
        if (is_number_flag(flag)) of_numbers.push_back(fmt::format("'{} --{}'", command.name, flag.name));
      } else {
        values += fmt::format("    '{} --{}') echo {} ;;\n", command.name, flag.name,
                              single_quoted(fmt::format("{}", fmt::join(own, " "))));
      }
    }
    flags += fmt::format("    '{}') echo '{}' ;;\n", command.name, fmt::join(words, " "));
    // A blank: values are known, and none is offered.
    if (!of_numbers.empty()) values += fmt::format("    {}) echo ' ' ;;\n", fmt::join(of_numbers, "|"));
    if (!of_folders.empty()) folders += fmt::format("    {}) return 0 ;;\n", fmt::join(of_folders, "|"));
  }
  for (const std::string& word : first_words(commands)) {
    std::vector<std::string> names;
    for (const CommandDescription* command : below(commands, word)) names.push_back(last_word(*command));
    if (!names.empty()) subcommands += fmt::format("    '{}') echo '{}' ;;\n", word, fmt::join(names, " "));
  }
  return filled(
      R"sh(# bash completion of trainyard, written by `trainyard completion bash`. It works without the package bash-completion:
#   source <(trainyard completion bash)

_trainyard_flags() {
  case "$1" in
@1@  esac
}

_trainyard_values() {
  case "$1" in
@2@  esac
}

_trainyard_takes_folder() {
  case "$1" in
@3@  esac
  return 1
}

_trainyard_subcommands() {
  case "$1" in
@4@  esac
}

_trainyard() {
  # Bash takes '=' for a word of its own: "--flag" "=" "value". It is joined again.
  local words=() i=0
  while ((i <= COMP_CWORD)); do
    if [[ ${COMP_WORDS[i]} == = && ${#words[@]} -gt 0 ]]; then
      words[-1]+==
      if ((i < COMP_CWORD)); then words[-1]+=${COMP_WORDS[++i]}; fi
    else
      words+=("${COMP_WORDS[i]}")
    fi
    ((++i))
  done
  local current=${words[-1]} command= flag= value=
  COMPREPLY=()
  if ((${#words[@]} == 2)); then
    COMPREPLY=($(compgen -W '@5@' -- "$current"))
    return
  fi
  command=${words[1]}
  local subcommands
  subcommands=$(_trainyard_subcommands "$command")
  if [[ -n $subcommands ]]; then
    if ((${#words[@]} == 3)); then
      COMPREPLY=($(compgen -W "$subcommands" -- "$current"))
      return
    fi
    command+=" ${words[2]}"
  fi
  if [[ $current == --*=* ]]; then
    flag=${current%%=*}
    value=${current#*=}
  elif [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$(_trainyard_flags "$command")" -- "$current"))
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
    return
  else
    flag=${words[-2]}
    value=$current
    [[ " $(_trainyard_flags "$command") " == *" $flag= "* ]] || flag=
  fi
  local choices=
  if [[ -n $flag ]]; then choices=$(_trainyard_values "$command $flag"); fi
  if [[ -n $choices ]]; then
    COMPREPLY=($(compgen -W "$choices" -- "$value"))
    return
  fi
  compopt -o filenames 2>/dev/null
  local IFS=$'\n'
  if [[ -n $flag ]] && _trainyard_takes_folder "$command $flag"; then
    COMPREPLY=($(compgen -d -- "$value"))
  else
    COMPREPLY=($(compgen -f -- "$value"))
  fi
}

complete -F _trainyard @6@
)sh",
      {flags, values, folders, subcommands, fmt::format("{}", fmt::join(first_words(commands), " ")),
       std::string(kProgram)});
}

// Returns a flag as _arguments of zsh takes it.
std::string zsh_flag(const FlagSpec& flag) {
  const std::string help = "[" + escaped(short_help(flag), "[]\\:") + "]";
  if (flag.kind == FlagKind::kBoolean) {
    std::string text = "      " + single_quoted("--" + flag.name + help) + " \\\n";
    if (flag.name != "help") text += "      " + single_quoted("--no" + flag.name) + " \\\n";
    return text;
  }
  std::string action = is_folder_flag(flag) ? "_files -/" : "_files";
  if (is_number_flag(flag)) action = " ";
  if (const std::vector<std::string> values = values_of(flag); !values.empty()) {
    std::vector<std::string> words;
    for (const std::string& value : values) words.push_back(escaped(value, " ()\\:"));
    action = fmt::format("({})", fmt::join(words, " "));
  }
  return "      " + single_quoted(fmt::format("--{}={}:{}:{}", flag.name, help, flag_kind_name(flag.kind), action)) +
         " \\\n";
}

std::string zsh_script(std::span<const CommandDescription> commands) {
  std::string overview, cases;
  const auto described = [](std::string_view name, std::string_view summary) {
    return "    " + single_quoted(fmt::format("{}:{}", name, escaped(summary, ":\\"))) + "\n";
  };
  for (const std::string& word : first_words(commands)) {
    overview += described(word, summary_of(commands, word));
    const std::vector<const CommandDescription*> subcommands = below(commands, word);
    if (subcommands.empty()) continue;
    cases += fmt::format("    {})\n      subcommands=(\n", word);
    for (const CommandDescription* command : subcommands) {
      cases += "    " + described(last_word(*command), command->summary);
    }
    cases += "      ) ;;\n";
  }
  std::string flags;
  for (const CommandDescription& command : commands) {
    flags += fmt::format("    {}) _arguments \\\n", single_quoted(command.name));
    for (const FlagSpec& flag : command.flags.all()) flags += zsh_flag(flag);
    flags += "      '*:file:_files' ;;\n";
  }
  return filled(R"sh(#compdef @1@
# zsh completion of trainyard, written by `trainyard completion zsh`. As a file _trainyard in a folder of $fpath, or:
#   source <(trainyard completion zsh)

_trainyard() {
  local -a commands subcommands
  local command=$words[2]
  commands=(
@2@  )
  if (( CURRENT == 2 )); then
    _describe -t commands 'command' commands
    return
  fi
  case $command in
@3@  esac
  if (( $#subcommands )); then
    if (( CURRENT == 3 )); then
      _describe -t commands 'command' subcommands
      return
    fi
    command="$command $words[3]"
    shift words
    (( CURRENT-- ))
  fi
  shift words
  (( CURRENT-- ))
  case $command in
@4@  esac
}

if [[ $funcstack[1] == _trainyard ]]; then
  _trainyard "$@"
else
  compdef _trainyard @5@
fi
)sh",
                {std::string(kProgram), overview, cases, flags, std::string(kProgram)});
}

std::string fish_quoted(std::string_view text) {
  return "'" + escaped(text, "'\\") + "'";
}

std::string fish_flag(const std::string& condition, const FlagSpec& flag) {
  const std::string begin = fmt::format("complete -c {} -n {} ", kProgram, fish_quoted(condition));
  std::string text = fmt::format("{}-l {} -d {}", begin, flag.name, fish_quoted(short_help(flag)));
  if (flag.kind == FlagKind::kBoolean) {
    text += "\n";
    if (flag.name != "help") text += fmt::format("{}-l no{}\n", begin, flag.name);
    return text;
  }
  if (const std::vector<std::string> values = values_of(flag); !values.empty()) {
    return text + fmt::format(" -x -a {}\n", fish_quoted(fmt::format("{}", fmt::join(values, " "))));
  }
  if (is_number_flag(flag)) return text + " -x\n";
  return text + (is_folder_flag(flag) ? " -x -a '(__fish_complete_directories)'\n" : " -r -F\n");
}

std::string fish_script(std::span<const CommandDescription> commands) {
  std::string text = filled(R"sh(# fish completion of trainyard, written by `trainyard completion fish`:
#   trainyard completion fish > ~/.config/fish/completions/trainyard.fish

function __trainyard_is
  set -l words (commandline -opc)
  set -l last (math (count $argv) + 1)
  test (count $words) -ge $last; and test "$words[2..$last]" = "$argv"
end
function __trainyard_is_at
  set -l words (commandline -opc)
  test (count $words) -eq (math (count $argv) + 1); and __trainyard_is $argv
end

complete -c @1@ -n 'test (count (commandline -opc)) -eq 1' -f
)sh",
                            {std::string(kProgram)});
  for (const std::string& word : first_words(commands)) {
    text += fmt::format("complete -c {} -n 'test (count (commandline -opc)) -eq 1' -a {} -d {}\n", kProgram, word,
                        fish_quoted(summary_of(commands, word)));
    for (const CommandDescription* command : below(commands, word)) {
      text += fmt::format("complete -c {} -n '__trainyard_is_at {}' -f -a {} -d {}\n", kProgram, word,
                          last_word(*command), fish_quoted(command->summary));
    }
  }
  for (const CommandDescription& command : commands) {
    for (const FlagSpec& flag : command.flags.all()) text += fish_flag("__trainyard_is " + command.name, flag);
  }
  return text;
}

}  // namespace

std::string completion_script(std::string_view shell, std::span<const CommandDescription> commands) {
  if (shell == "bash") return bash_script(commands);
  if (shell == "zsh") return zsh_script(commands);
  if (shell == "fish") return fish_script(commands);
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    core::unknown_name("shell", std::string(shell), {"bash", "zsh", "fish"}).detail());
}

}  // namespace trainyard::cli
