// Flags: YAML files and command lines, right and wrong in known ways.
#include <map>
#include <string>
#include <vector>

#include "tests/hostile/hostile.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/core/testing/flags_table.h"
#include "trainyard/data/pipeline/epoch_sizes.h"
#include "trainyard/optim/schedules/learning_rate.h"
#include "trainyard/parallel/collectives/all_reduce_spec.h"
#include "trainyard/parallel/launch/hosts.h"

namespace trainyard::hostile {
namespace {

using core::ErrorCode, core::FlagValues;

const core::FlagTable& table() {
  static const core::FlagTable kTable = core::small_table();
  return kTable;
}

FlagValues read_yaml(Case& drawn, const std::string& text) {
  const std::string path = core::join_path(drawn.folder, "flags.yaml");
  const auto file = core::local_file_system().open_write(path);
  file->write(text);
  file->close();
  FlagValues values(table());
  core::read_config_file(path, values);
  return values;
}

struct GoodFlags {
  int64_t batch_size = 0;
  double momentum = 0;
  bool eval = false;
  std::string data_dir{};
  std::vector<std::string> steps{};
};

GoodFlags any_flags(Case& drawn) {
  GoodFlags flags{.batch_size = drawn.below(int64_t{1} << 40),
                  .momentum = static_cast<double>(drawn.below(1001)) / 1000,
                  .eval = drawn.draw.next_bool()};
  for (int64_t i = drawn.between(1, 12); i > 0; --i) flags.data_dir += static_cast<char>(drawn.between('a', 'z'));
  for (int64_t i = drawn.below(4); i > 0; --i) flags.steps.push_back(fmt::format("{}", drawn.below(100)));
  return flags;
}

void expect_same(const FlagValues& values, const GoodFlags& flags) {
  check(values.integer("batch_size") == flags.batch_size && values.real("momentum") == flags.momentum &&
            values.boolean("eval") == flags.eval && values.text("data_dir") == flags.data_dir &&
            values.list("eval_steps") == flags.steps,
        "flags have other values than were written");
}

std::string yaml_of(const GoodFlags& flags) {
  return fmt::format("batch_size: {}\nmomentum: {}\neval: {}\ndata_dir: \"{}\"\neval_steps: [{}]\n", flags.batch_size,
                     flags.momentum, flags.eval, flags.data_dir, fmt::join(flags.steps, ", "));
}

std::string run_yaml(Case& drawn) {
  struct Wrong {
    const char* name;
    std::string line;
  };
  const std::string many = std::string(static_cast<size_t>(drawn.between(600, 20'000)), '[');
  const Wrong wrongs[] = {
      {"unknown flag", "batch_sise: 3\n"},
      {"given twice", "batch_size: 3\n"},
      {"no number", "num_batches: many\n"},
      {"below the bound", "clip: 1\nspec: \"\"\nnum_batches: 1\nunified: 7\n"},
      {"mapping as value", "spec: {a: 1}\n"},
      {"sequence in a sequence", "spec: [a, [b]]\n"},
      {"null in a sequence", "spec: [a, ~]\n"},
      {"no choice", "optimizer: sgb\n"},
      {"tab", "\tspec: a\n"},
      {"open quote", "spec: \"a\n"},
      {"open bracket", "spec: [a\n"},
      {"deep brackets", "spec: " + many + "\n"},
      {"unknown alias", "spec: *none\n"},
      {"second document", "---\nspec: a\n"},
      {"key that is a list", "? [a, b]\n: c\n"},
      {"config in a config", "config: other.yaml\n"},
      {"bad escape", "spec: \"\\q\"\n"},
      {"unset text of a flag with a default", "batch_size2: ~\n"},
  };
  const GoodFlags flags = any_flags(drawn);
  std::string text = yaml_of(flags);
  const int64_t how = drawn.below(8);
  if (how == 0) {
    const FlagValues values = read_yaml(drawn, text);
    expect_same(values, flags);
    expect_same(read_yaml(drawn, core::dump_config(values)), flags);
    return "YAML whole";
  }
  if (how == 1) {
    text.resize((size_t{1} << 20) + 1 + static_cast<size_t>(drawn.below(100)), '#');
    if (taken("YAML of more than 1 MiB", [&] { read_yaml(drawn, text); })) throw Fault("YAML of 1 MiB was taken");
    return "YAML too long";
  }
  if (how == 2) {
    for (int64_t i = drawn.between(1, 4); i > 0; --i) drawn.flip_bit(text);
    std::string dumped;
    if (!taken("YAML with bits flipped", [&] { dumped = core::dump_config(read_yaml(drawn, text)); }))
      return "YAML bits flipped, refused";
    check(core::dump_config(read_yaml(drawn, dumped)) == dumped, "what was read is not what its dump gives");
    return "YAML bits flipped, read";
  }
  if (how == 3) {
    const std::string noise = drawn.bytes(drawn.between(1, 200));
    taken("noise as YAML", [&] { read_yaml(drawn, noise); });
    return "YAML noise";
  }
  const Wrong& wrong = wrongs[static_cast<size_t>(drawn.below(std::size(wrongs)))];
  const bool first = drawn.draw.next_bool() && std::string_view(wrong.name) != "second document";
  const std::string message = refused(ErrorCode::kInvalidArgument, std::string("YAML with ") + wrong.name,
                                      [&] { read_yaml(drawn, first ? wrong.line + text : text + wrong.line); });
  check(message.find("flags.yaml") != std::string::npos, "the file is not named: " + message);
  return std::string("YAML ") + wrong.name;
}

std::string run_command_line(Case& drawn) {
  const GoodFlags flags = any_flags(drawn);
  std::vector<std::string> arguments = {fmt::format("--batch_size={}", flags.batch_size),
                                        fmt::format("--momentum={}", flags.momentum),
                                        flags.eval ? "--eval" : "--noeval", "--data_dir=" + flags.data_dir,
                                        fmt::format("--eval_steps={}", fmt::join(flags.steps, ","))};
  const auto parse = [&] { return core::parse_flags(table(), arguments, core::Repeats::kRefused); };
  const std::string wrongs[] = {"--batch_sise=3",
                                "--batch_size=-1",
                                "--momentum=2",
                                "--momentum=nan",
                                "--eval=perhaps",
                                "--num_batches=1e3",
                                "--optimizer=sgb",
                                "positional",
                                "--=3",
                                "--batch_size=" + std::string(400, '9'),
                                "--num_batches",
                                "---eval",
                                "--clip=" + drawn.bytes(3) + "x"};
  const int64_t how = drawn.below(3);
  if (how == 0) {
    expect_same(parse(), flags);
    return "arguments whole";
  }
  if (how == 1) {
    arguments.push_back(wrongs[static_cast<size_t>(drawn.below(std::size(wrongs)))]);
    refused(ErrorCode::kInvalidArgument, "the argument " + arguments.back(), [&] { static_cast<void>(parse()); });
    return "arguments wrong";
  }
  arguments.push_back(drawn.bytes(drawn.between(1, 30)));
  taken("noise as an argument", [&] { static_cast<void>(parse()); });
  return "arguments noise";
}

// Small languages of flags: what is accepted is a value that is written as the same.
std::string run_texts(Case& drawn) {
  constexpr std::string_view kLetters = "0123456789:,;.#xkM-/ abcdeinopprsuxy";
  std::string text;
  static const char* const kSeeds[] = {"pscpu:32k:xring#2", "a:2,b:2", "0:128,20:160x192", "0.1;10;0.01", "ring"};
  if (drawn.draw.next_bool()) text = kSeeds[drawn.below(std::size(kSeeds))];
  for (int64_t i = drawn.between(text.empty() ? 1 : 0, 12); i > 0; --i) {
    const auto place = static_cast<size_t>(drawn.below(static_cast<int64_t>(text.size()) + 1));
    text.insert(place, 1, kLetters[static_cast<size_t>(drawn.below(static_cast<int64_t>(kLetters.size())))]);
  }
  int accepted = 0;
  accepted += taken("a spec of all-reduce", [&] {
    const auto ranges = parallel::parse_all_reduce_spec(text);
    check(parallel::parse_all_reduce_spec(parallel::all_reduce_spec_text(ranges)) == ranges, "another spec: " + text);
  });
  accepted += taken("hosts", [&] {
    const std::string written = parallel::format_hosts(parallel::parse_hosts(text));
    check(parallel::format_hosts(parallel::parse_hosts(written)) == written, "other hosts: " + text);
  });
  accepted += taken("a file of hosts", [&] {
    for (const parallel::HostSlots& host : parallel::parse_host_file("hosts", text)) check(host.slots > 0, text);
  });
  accepted += taken("sizes by epoch", [&] {
    for (const data::EpochSize& size : data::parse_epoch_sizes(text))
      check(size.size.height > 0 && size.size.width > 0 && size.from_epoch >= 0, "a size is not one: " + text);
  });
  accepted += taken("a piecewise schedule", [&] { static_cast<void>(optim::parse_piecewise(text)); });
  return accepted > 0 ? "text taken" : "text refused";
}

}  // namespace

std::string run_configs(Case& drawn) {
  switch (drawn.below(4)) {
    case 0:
    case 1:
      return run_yaml(drawn);
    case 2:
      return run_command_line(drawn);
    default:
      return run_texts(drawn);
  }
}

}  // namespace trainyard::hostile
