#include "trainyard/frontends/options/cluster_options.h"

#include <charconv>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flag_value.h"

namespace trainyard::frontends {
namespace {

using core::Error;
using core::ErrorCode;

Error invalid(std::string problem, std::string expected, std::string actual, std::string remedy) {
  return {ErrorCode::kInvalidArgument,
          {.problem = std::move(problem),
           .expected = std::move(expected),
           .actual = std::move(actual),
           .remedy = std::move(remedy)}};
}

// Returns the name of a flag that is set although no job_name is; empty: there is none.
std::string idle_flag(const ClusterOptions& options) {
  if (!options.ps_hosts.empty()) return "ps_hosts";
  if (!options.worker_hosts.empty()) return "worker_hosts";
  if (!options.controller_host.empty()) return "controller_host";
  if (options.task_index != 0) return "task_index";
  if (!options.cross_replica_sync) return "nocross_replica_sync";
  if (!options.tls_cert.empty()) return "tls_cert";
  if (!options.tls_key.empty()) return "tls_key";
  return options.tls_ca.empty() ? "" : "tls_ca";
}

void check_addresses(const ClusterOptions& options) {
  std::map<std::pair<std::string, uint16_t>, std::string> seen;
  const auto add = [&seen](const std::string& text, const std::string& flag, const std::string& name) {
    const HostAddress address = parse_host(text, flag);
    const auto [place, is_new] = seen.emplace(std::pair{address.host, address.port}, name);
    if (!is_new) {
      throw invalid("two processes of the cluster have one address", "a host or a port of its own for each",
                    fmt::format("{} and {} at {}", place->second, name, text), "change one of the ports");
    }
  };
  for (size_t i = 0; i < options.ps_hosts.size(); ++i) add(options.ps_hosts[i], "ps_hosts", fmt::format("ps {}", i));
  for (size_t i = 0; i < options.worker_hosts.size(); ++i) {
    add(options.worker_hosts[i], "worker_hosts", fmt::format("worker {}", i));
  }
  if (!options.controller_host.empty()) add(options.controller_host, "controller_host", "the controller");
}

void check_task_index(const ClusterOptions& options) {
  const size_t tasks = options.is_server()   ? options.ps_hosts.size()
                       : options.is_worker() ? options.worker_hosts.size()
                                             : 1;
  if (options.task_index >= 0 && std::cmp_less(options.task_index, tasks)) return;
  throw invalid(fmt::format("--task_index names no {} of the cluster", options.job_name),
                fmt::format("a number from 0 to {}", tasks == 0 ? 0 : tasks - 1), std::to_string(options.task_index),
                fmt::format("--{} lists {} of them", options.is_server() ? "ps_hosts" : "worker_hosts", tasks));
}

void check_tls(const ClusterOptions& options, bool has_servers) {
  const int given =
      (options.tls_cert.empty() ? 0 : 1) + (options.tls_key.empty() ? 0 : 1) + (options.tls_ca.empty() ? 0 : 1);
  if (given == 0) return;
  if (given != 3) {
    throw invalid("--tls_cert, --tls_key and --tls_ca are given all three or not at all", "three files",
                  fmt::format("{} of them", given), "both sides show a certificate, and check that of the other");
  }
  if (!has_servers) {
    throw invalid("--tls_cert, --tls_key and --tls_ca are for the connections of parameter servers", "--ps_hosts",
                  "a cluster without servers", "leave them out, or encrypt the network of the workers");
  }
}

}  // namespace

std::string ClusterOptions::process_name() const {
  const std::vector<std::string>& hosts = is_server() ? ps_hosts : worker_hosts;
  if (is_controller()) return fmt::format("controller ({})", controller_host);
  const auto index = static_cast<size_t>(task_index);
  return fmt::format("{} {} ({})", job_name, task_index, index < hosts.size() ? hosts[index] : "no host");
}

void ClusterOptions::validate(const std::string& update) const {
  if (job_name.empty()) {
    const std::string idle = idle_flag(*this);
    if (idle.empty()) return;
    throw invalid(fmt::format("--{} is of --job_name", idle), "both, or neither", "no --job_name",
                  "pass --job_name=ps, worker or controller, or leave it out");
  }
  const bool has_servers = update == "parameter_server" || update == "distributed_replicated";
  if (!has_servers && update != "distributed_all_reduce" && update != "collective_all_reduce") {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("Invalid variable_update in distributed mode: {}", update));
  }
  if (worker_hosts.empty()) {
    throw invalid("the cluster has no workers", "--worker_hosts=HOST:PORT,...", "no --worker_hosts",
                  "give every process of the cluster the same lists of hosts");
  }
  if (has_servers && ps_hosts.empty()) {
    throw invalid(fmt::format("--variable_update={} needs parameter servers", update), "--ps_hosts=HOST:PORT,...",
                  "no --ps_hosts", "start processes with --job_name=ps, and list them for all");
  }
  if (is_server() && !has_servers) {
    throw invalid(fmt::format("--variable_update={} has no parameter servers", update), "--job_name=worker",
                  "--job_name=ps", "start no such process");
  }
  if (is_controller() && update != "distributed_all_reduce") {
    throw invalid("a controller is of --variable_update=distributed_all_reduce", "--job_name=ps or worker",
                  "--job_name=controller with --variable_update=" + update, "start no such process");
  }
  check_addresses(*this);
  check_task_index(*this);
  check_tls(*this, has_servers);
}

HostAddress parse_host(const std::string& text, const std::string& flag) {
  const size_t colon = text.rfind(':');
  HostAddress address;
  bool good = colon != std::string::npos && colon > 0 && colon + 1 < text.size();
  if (good) {
    address.host = text.substr(0, colon);
    if (address.host.starts_with('[') && address.host.ends_with(']')) {
      address.host = address.host.substr(1, address.host.size() - 2);
    }
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, address.port);
    good = error == std::errc() && rest == end && address.port != 0 && !address.host.empty();
  }
  if (good) return address;
  throw invalid(fmt::format("--{} holds no address", flag), "HOST:PORT, such as 10.0.0.2:2222", text,
                "name each process by a host and a port from 1 to 65535");
}

core::OptionFlags<ClusterOptions> cluster_flags() {
  using C = ClusterOptions;
  core::OptionFlags<C> flags("Processes");
  flags.choice("job_name", &C::job_name, {"ps", "worker", "controller", ""},
               "what this process is: ps serves variables to workers, a worker trains, and the controller of "
               "variable_update=distributed_all_reduce shows what the workers train, of whom worker 0 saves");
  core::FlagTable& table = flags.table();
  const std::string& group = flags.group();
  table.text("ps_hosts", "", "host:port of each parameter server, comma separated; the same for all").group(group);
  table.text("worker_hosts", "", "host:port of each worker, comma separated; the same for all").group(group);
  table.text("controller_host", std::nullopt, "host:port of the controller").group(group);
  flags.also([](const core::FlagValues& values, C& options) {
    options.ps_hosts = core::split_list(values.text("ps_hosts"));
    options.worker_hosts = core::split_list(values.text("worker_hosts"));
    options.controller_host = values.optional_text("controller_host").value_or("");
  });
  flags.add("task_index", &C::task_index, "which of the processes of its job this is, from 0; worker 0 is the chief");
  flags.add("cross_replica_sync", &C::cross_replica_sync,
            "workers wait for each other at every step; false: parameter servers apply the gradients of each worker as "
            "they come");
  flags.add("tls_cert", &C::tls_cert, "PEM file of this process's certificate, for parameter servers and workers");
  flags.add("tls_key", &C::tls_key, "PEM file of the key of tls_cert");
  flags.add("tls_ca", &C::tls_ca,
            "PEM file of the authority that has signed the certificates; with it servers and workers refuse who has "
            "none of its certificates");
  return flags;
}

}  // namespace trainyard::frontends
