// Several processes that train together: flags of `trainyard launch`, and its two modes that only it starts itself.
#include <algorithm>
#include <charconv>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/parallel/launch/agent.h"
#include "trainyard/parallel/launch/cluster_roles.h"
#include "trainyard/parallel/launch/keeper.h"
#include "trainyard/parallel/launch/launch.h"
#include "trainyard/parallel/launch/process.h"
#include "trainyard/parallel/process_group/process_rank.h"

namespace trainyard::cli {
namespace {

void declare_launch_flags(core::FlagTable& table) {
  constexpr const char *kRanks = "Ranks", *kHosts = "Hosts", *kFailures = "Failures";
  table.integer("ranks", 1, "how many processes").bounds(1, 4096).short_form('n').group(kRanks);
  // What others call it: mpirun, horovodrun and torchrun among them.
  for (const char* const name : {"num_ranks", "np", "num_proc", "nproc_per_node"}) table.suggest(name, "ranks");
  table.text("log_dir", "", "folder for a log of each rank: rank-0.log, ...").group(kRanks);
  table.text("program", "", "starts this program, which may use MPI, in the place of trainyard").group(kRanks);
  table
      .boolean("dry_run", false,
               "print the command lines of mpirun, for the start and for restarts with fewer ranks, and start nothing")
      .group(kRanks);
  constexpr const char* kCluster = "Parameter servers";
  table
      .integer("ps", 0,
               "parameter servers, in the place of --ranks: they and the workers get --job_name, --task_index and the "
               "lists of hosts, in front of the command's other flags")
      .bounds(0, 4096)
      .group(kCluster);
  table.integer("workers", 0, "workers, with --ps or --controller").bounds(0, 4096).group(kCluster);
  table.boolean("controller", false, "a controller, with --workers: for --variable_update=distributed_all_reduce")
      .group(kCluster);
  table.integer("first_port", 2222, "with --hosts: the port of the first process of each host; the others follow")
      .bounds(1, 65535)
      .group(kCluster);
  table.text("hosts", "", "other hosts with their numbers of ranks, a:2,b:2, as mpirun --host").group(kHosts);
  table.text("hostfile", "", "file with lines NAME slots=RANKS, as mpirun --hostfile").group(kHosts);
  table
      .text("network", "", "network that the hosts share, 10.0.0.0/24: ports listen there, not on the loopback address")
      .group(kHosts);
  table.integer("max_restarts", 0, "how often all ranks are started again after one has failed")
      .bounds(0, 1000000)
      .group(kFailures);
  table
      .integer("min_ranks", 0,
               "restarts go on without the failed rank, with at least so many, at the same global batch; "
               "0: with as many as before")
      .bounds(0, 4096)
      .group(kFailures);
  table.real("start_timeout", 600, "seconds that all ranks have to start").bounds(0.1, 1e6).group(kFailures);
  table.real("failure_timeout", 10, "seconds that the others have to end by themselves after one has failed")
      .bounds(0, 1e6)
      .group(kFailures);
  table.real("stop_timeout", 600, "seconds that ranks have to save and end when SIGTERM or SIGINT asks for it")
      .bounds(0, 1e6)
      .group(kFailures);
}

core::Error wrong_min_ranks(std::string problem, std::string actual, std::string remedy) {
  return {core::ErrorCode::kInvalidArgument,
          {.problem = std::move(problem),
           .where = "--min_ranks",
           .actual = std::move(actual),
           .remedy = std::move(remedy)}};
}

bool is_flags_alone(const Arguments& command) {
  return command[0].starts_with("-");
}

// The flags of a command that trains, as `train` or by flags alone.
core::FlagValues training_flags(const Arguments& command) {
  const bool flags_alone = is_flags_alone(command);
  const auto dialect = flags_alone ? frontends::Dialect::kTfCnnBenchmarks : frontends::Dialect::kTrainyard;
  const Arguments flags(command.begin() + (flags_alone ? 0 : 1), command.end());
  return core::parse_flags(frontends::tf_cnn_flags(dialect), flags);
}

// Each start has the same flags: throws where a restart would put away what the run has saved.
void check_restarts(const core::FlagValues& values, const Arguments& command) {
  if (values.integer("max_restarts") == 0 || !values.text("program").empty()) return;
  if (!is_flags_alone(command) && command[0] != "train") return;
  std::optional<core::FlagValues> flags;
  try {
    flags = training_flags(command);
  } catch (const core::Error&) {
    return;  // the ranks say it
  }
  const auto is_set = [&](const char* name) { return flags->table().find(name) != nullptr && flags->boolean(name); };
  if (is_set("eval") || is_set("forward_only")) return;
  const std::string existing = flags->text("existing_run");
  if (existing != "ask" && existing != "keep") {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a restart would not go on with the run: it would put it away, too",
                       .where = "--existing_run=" + existing,
                       .remedy = "use a new --train_dir and leave --existing_run out, or leave --max_restarts out"});
  }
  if (flags->text("train_dir").empty()) {
    core::log::warning("--max_restarts: without --train_dir a restart begins with the first step");
  }
}

// Whether fewer ranks with larger batches would sum up to less at the same rate.
bool sums_at_given_rate(const core::FlagValues& values) {
  const bool is_given = values.given("init_learning_rate") || values.given("piecewise_learning_rate_schedule");
  if (!is_given || values.text("learning_rate_scaling") != "none") return false;
  const std::string update = values.text("variable_update"), reduction = values.text("gradient_reduction");
  if (reduction != "auto") return reduction == "sum";
  if (update == "horovod") return values.text("horovod_reduce") == "sum";
  return update == "collective_all_reduce" || update == "distributed_all_reduce";
}

// The images a rank and step that a trainyard command asks for.
int64_t batch_size_of(const Arguments& command) {
  if (!is_flags_alone(command) && command[0] != "train") {
    throw wrong_min_ranks("only a training can go on with fewer ranks", command[0], "leave it out");
  }
  const core::FlagValues values = training_flags(command);
  if (sums_at_given_rate(values)) {
    core::log::warning(
        "--min_ranks: the gradients of ranks are summed, and fewer ranks sum up to less at the learning rate that is "
        "given; --gradient_reduction=mean averages them");
  }
  const int64_t batch_size = values.is_word("batch_size") ? 0 : values.integer("batch_size");
  if (batch_size > 0) return batch_size;
  throw wrong_min_ranks("the batch of a rank must be known", "no number of --batch_size in the command",
                        "add --batch_size");
}

Arguments with_batch_size(const Arguments& command, int64_t batch_size) {
  Arguments changed;
  for (size_t i = 0; i < command.size(); ++i) {
    const std::string name = command[i].substr(0, command[i].find('='));
    const bool is_batch_size = name == "--batch_size" || name == "-batch_size";
    if (is_batch_size && name == command[i]) ++i;  // its value is the next word
    if (!is_batch_size) changed.push_back(command[i]);
  }
  changed.push_back(fmt::format("--batch_size={}", batch_size));
  return changed;
}

// The commands of the launch: the first one, then those to continue with, from most ranks to least.
std::vector<parallel::RankCommand> rank_commands(const core::FlagValues& values, const Arguments& command) {
  const int ranks = static_cast<int>(values.integer("ranks"));
  const int least = static_cast<int>(values.integer("min_ranks"));
  const std::string program = values.text("program");
  const auto make = [&](int count, const Arguments& arguments) {
    parallel::RankCommand made{.ranks = count, .arguments = {program.empty() ? parallel::own_program() : program}};
    made.arguments.insert(made.arguments.end(), arguments.begin(), arguments.end());
    return made;
  };
  std::vector<parallel::RankCommand> commands{make(ranks, command)};
  if (least == 0) return commands;
  if (least >= ranks) {
    throw wrong_min_ranks("there are no fewer ranks to go on with", fmt::format("{} of {}", least, ranks),
                          "use a smaller number");
  }
  if (!program.empty()) {
    for (int count = ranks - 1; count >= least; --count) commands.push_back(make(count, command));
    return commands;
  }
  const int64_t batch_size = batch_size_of(command), all = batch_size * ranks;
  std::vector<int> allowed;
  for (int count = 1; count < ranks; ++count) {
    if (all % count == 0) allowed.push_back(count);
  }
  for (auto count = allowed.rbegin(); count != allowed.rend() && *count >= least; ++count) {
    commands.push_back(make(*count, with_batch_size(command, all / *count)));
  }
  if (commands.size() > 1) return commands;
  throw wrong_min_ranks(
      fmt::format("no number of ranks from {} to {} shares {} images a step evenly", least, ranks - 1, all),
      fmt::format("{} ranks with --batch_size={}", ranks, batch_size),
      fmt::format("allow {} ranks, or use another --batch_size", fmt::join(allowed, ", ")));
}

// The ranks of a launch with servers or a controller; no workers: there is none.
parallel::ClusterRoles cluster_roles(const core::FlagValues& values) {
  const parallel::ClusterRoles roles{.servers = static_cast<int>(values.integer("ps")),
                                     .workers = static_cast<int>(values.integer("workers")),
                                     .controller = values.boolean("controller")};
  const auto refuse = [](bool holds, const char* problem, const char* remedy) {
    if (holds) throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = problem, .remedy = remedy});
  };
  const bool asked = roles.servers > 0 || roles.controller || roles.workers > 0;
  refuse(asked && roles.workers == 0, "a cluster needs workers", "add --workers=2");
  refuse(asked && values.given("ranks"), "--ranks and --workers both say how many processes there are",
         "leave --ranks out: it is the number of --ps, --workers and --controller together");
  refuse(asked && !values.text("program").empty(), "a cluster is one of trainyard's own processes",
         "leave --program out");
  refuse(asked && values.integer("min_ranks") != 0, "a cluster cannot go on with fewer processes",
         "leave --min_ranks out");
  refuse(!asked && values.given("first_port"), "--first_port is of --ps and --workers", "pass both, or neither");
  return roles;
}

// The one command of a cluster, whose ranks differ by flags.
parallel::RankCommand cluster_command(const core::FlagValues& values, const Arguments& command,
                                      const parallel::ClusterRoles& roles, std::vector<std::string>& names) {
  std::vector<parallel::HostSlots> hosts;
  if (!values.text("hosts").empty()) hosts = parallel::parse_hosts(values.text("hosts"));
  if (const std::string& file = values.text("hostfile"); !file.empty()) {
    hosts = parallel::parse_host_file(file, core::local_file_system().read_file(file));
  }
  const auto placed = parallel::place_cluster(roles, hosts, static_cast<uint16_t>(values.integer("first_port")));
  parallel::RankCommand made{.ranks = roles.ranks(), .arguments = {parallel::own_program()}};
  made.arguments.insert(made.arguments.end(), command.begin(), command.end());
  made.arguments.insert(made.arguments.end(), placed.flags.begin(), placed.flags.end());
  for (const parallel::ClusterRank& rank : placed.ranks) {
    names.push_back(rank.name);
    made.of_rank.push_back(rank.flags);
  }
  return made;
}

}  // namespace

int run_launch(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  declare_launch_flags(table);
  const auto parsed = parse_command({"launch", "processes that train together, by Open MPI's mpirun", "-- COMMAND..."},
                                    table, arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagValues& values = parsed->values;
  const Arguments& command = parsed->positional;
  if (command.empty() && values.text("program").empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "there is nothing to launch",
                       .remedy = "write the command behind --: trainyard launch -n 2 -- train ..."});
  }
  if (!command.empty() && values.text("program").empty() && command[0].starts_with("launch")) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a launch cannot be launched", .remedy = "leave one of them out"});
  }
  const parallel::ClusterRoles roles = cluster_roles(values);
  check_restarts(values, command);
  std::vector<std::string> names;
  std::vector<parallel::RankCommand> commands;
  if (roles.workers > 0) {
    commands.push_back(cluster_command(values, command, roles, names));
  } else {
    commands = rank_commands(values, command);
  }
  const parallel::LaunchOptions options{.commands = std::move(commands),
                                        .names = std::move(names),
                                        .trainyard = parallel::own_program(),
                                        .hosts = values.text("hosts"),
                                        .host_file = values.text("hostfile"),
                                        .network = values.text("network"),
                                        .log_dir = values.text("log_dir"),
                                        .max_restarts = static_cast<int>(values.integer("max_restarts")),
                                        .start_timeout = values.real("start_timeout"),
                                        .failure_timeout = values.real("failure_timeout"),
                                        .stop_timeout = values.real("stop_timeout")};
  if (values.boolean("dry_run")) {
    console.out << parallel::launch_command_lines(options);
    return kSuccess;
  }
  return parallel::launch(options, console.stop);
}

// trainyard launch-rank [ARGUMENTS-OF-RANK-0 ARGUMENTS-OF-RANK-1 ...] -- PROGRAM ARGUMENT...
int run_launch_rank(const Arguments& arguments, Console& console) {
  const auto end_of_flags = std::find(arguments.begin(), arguments.end(), "--");
  Arguments command(end_of_flags == arguments.end() ? end_of_flags : end_of_flags + 1, arguments.end());
  if (end_of_flags != arguments.begin() && end_of_flags != arguments.end()) {
    const std::string rank = parallel::read_environment("OMPI_COMM_WORLD_RANK").value_or("0");
    size_t number = 0;
    std::from_chars(rank.data(), rank.data() + rank.size(), number);
    std::istringstream words(arguments.at(std::min(number, arguments.size() - 1)));
    for (std::string word; words >> word;) command.push_back(word);
  }
  parallel::run_launch_agent(command, console.stop);
  return kSuccess;
}

// trainyard launch-keeper FOLDER... -- COMMAND ARGUMENT...
int run_launch_keeper(const Arguments& arguments, Console& console) {
  const auto end_of_folders = std::find(arguments.begin(), arguments.end(), "--");
  if (arguments.end() - end_of_folders < 2) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "this command is for `trainyard launch` itself",
                                                          .remedy = "see trainyard launch --help"});
  }
  return parallel::run_launch_keeper({end_of_folders + 1, arguments.end()}, {arguments.begin(), end_of_folders},
                                     console.stop);
}

}  // namespace trainyard::cli
