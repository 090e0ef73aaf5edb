#include "trainyard/parallel/launch/mpirun_command.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "trainyard/parallel/launch/agent.h"

namespace trainyard::parallel {
namespace {

constexpr const char* kPreload = "LD_PRELOAD";
constexpr const char* kBindAddress = "TRAINYARD_BIND_ADDRESS";

// Open MPI's defaults that do not suit; the comment of each says why.
std::vector<std::pair<std::string, std::string>> mpi_settings(const Network* network, const MpirunFolders& folders) {
  std::vector<std::pair<std::string, std::string>> settings{
      {"mpi_yield_when_idle", "1"},  // ranks spin while they wait, and starve each other on few cores
      {"pml", "ob1"},                // one way to send messages on all machines, whatever network cards they have
      {"btl", network == nullptr ? "self,vader" : "self,vader,tcp"},
      {"oob_tcp_if_include", network == nullptr ? "lo" : network->text},
  };
  if (network != nullptr) {
    settings.emplace_back("btl_tcp_if_include", network->text);
    return settings;  // folders of this machine are none of others: Open MPI makes and removes its own
  }
  settings.emplace_back("orte_tmpdir_base", folders.session);
  // Neither ssh nor a batch system's daemons are asked for other machines.
  settings.emplace_back("plm", "isolated");
  settings.emplace_back("ras", "^slurm,tm,lsf,gridengine,loadleveler,alps");
  if (!folders.memory.empty()) {
    settings.emplace_back("btl_vader_backing_directory", folders.memory);
    settings.emplace_back("osc_sm_backing_directory", folders.memory);
  }
  return settings;
}

std::string loopback_or_own(const Network* network) {
  return network == nullptr ? "127.0.0.1" : network->own_address;
}

}  // namespace

std::string loopback_preload_path() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&loopback_preload_path), &self) == 0 || self.dli_fname == nullptr)
    return "";
  std::error_code error;
  const std::filesystem::path library = std::filesystem::canonical(self.dli_fname, error);
  const std::filesystem::path preload = library.parent_path() / "libtrainyard_loopback.so";
  return !error && std::filesystem::exists(preload, error) ? preload.string() : "";
}

std::vector<std::string> mpirun_command(const LaunchOptions& options, const RankCommand& command,
                                        const Network* network, const std::vector<HostSlots>& hosts,
                                        const MpirunFolders& folders) {
  std::vector<std::string> words{"env"};
  const char* const users_preload = std::getenv(kPreload);
  const std::string preload = loopback_preload_path();
  if (!preload.empty()) {
    words.push_back(fmt::format("{}={}{}{}", kPreload, preload, users_preload == nullptr ? "" : ":",
                                users_preload == nullptr ? "" : users_preload));
    words.push_back(fmt::format("{}={}", kBindAddress, loopback_or_own(network)));
  }
  for (const auto& [name, value] : mpi_settings(network, folders)) {
    const std::string variable = "OMPI_MCA_" + name;
    if (std::getenv(variable.c_str()) == nullptr) words.push_back(fmt::format("{}={}", variable, value));
  }
  if (::geteuid() == 0) {  // as in most containers, where mpirun would refuse
    words.insert(words.end(), {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
  }
  // Survivors of a failed rank live on, and say what they saw. More ranks than cores are allowed, and none is bound to
  // one: it would take its threads along.
  words.insert(words.end(),
               {"mpirun", "--enable-recovery", "--oversubscribe", "--bind-to", "none", "--map-by", "slot"});
  words.insert(words.end(), {"-n", std::to_string(command.ranks)});
  if (network == nullptr) {
    words.insert(words.end(), {"--host", fmt::format("localhost:{}", command.ranks)});
  } else if (!hosts.empty()) {
    words.insert(words.end(), {"--host", format_hosts(hosts)});
  } else if (!options.hosts.empty()) {
    words.insert(words.end(), {"--host", options.hosts});
  } else if (!options.host_file.empty()) {
    words.insert(words.end(), {"--hostfile", options.host_file});
  }
  for (const char* name : {kLaunchAddressVariable, kLaunchTokenVariable}) words.insert(words.end(), {"-x", name});
  if (network != nullptr)
    words.insert(words.end(), {"-x", fmt::format("{}={}", kLaunchNetworkVariable, network->text)});
  words.insert(words.end(), {"env", "-u", kBindAddress});
  if (users_preload == nullptr) {
    words.insert(words.end(), {"-u", kPreload});
  } else {
    words.push_back(fmt::format("{}={}", kPreload, users_preload));
  }
  words.insert(words.end(), {options.trainyard, "launch-rank"});
  for (const std::vector<std::string>& more : command.of_rank) words.push_back(fmt::format("{}", fmt::join(more, " ")));
  words.emplace_back("--");
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  return words;
}

}  // namespace trainyard::parallel
