#include "trainyard/parallel/collectives/mpi/mpi_launcher.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

constexpr const char* kAtOnceOverTcp = "327680";  // bytes: a chunk with room for MPI's headers

// Returns the number in the first of these variables that has one; 0: none has.
int number_in(const ReadVariable& read, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::optional<int64_t> value = number_of_launcher(read, name);
    if (value && *value <= std::numeric_limits<int>::max()) return static_cast<int>(*value);
  }
  return 0;
}

// Returns whether a process may read another's memory, which containers forbid: Open MPI finds out too late.
bool may_read_other_processes() {
  char from = 1, to = 0;
  const iovec local{&to, 1}, remote{&from, 1};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Readers see all of it or nothing.
void write_at_once(const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".new";
  core::FileSystem& files = core::local_file_system();
  try {
    const auto file = files.open_write(unfinished);
    file->write(text);
    file->close();
    files.rename(unfinished, path);
  } catch (const Error& error) {
    throw Error(ErrorCode::kIo, {.problem = "rank 0 cannot say where the processes meet",
                                 .where = path,
                                 .actual = error.what(),
                                 .remedy = "look whether the folder can be written to, and whether the disk is full"});
  }
}

std::string await_file(const std::string& path, std::chrono::milliseconds deadline) {
  constexpr auto kLookAgain = std::chrono::milliseconds(2);
  const auto end = std::chrono::steady_clock::now() + deadline;
  std::error_code ignored;
  while (!std::filesystem::exists(path, ignored)) {
    if (std::chrono::steady_clock::now() > end) {
      throw Error(ErrorCode::kTimeout, {.problem = fmt::format("rank 0 has not come within {:.3g} s",
                                                               std::chrono::duration<double>(deadline).count()),
                                        .where = path,
                                        .remedy = "look whether rank 0 runs, and what it said last"});
    }
    std::this_thread::sleep_for(kLookAgain);
  }
  return read_whole(path);
}

}  // namespace

bool started_by_mpi(const ReadVariable& read) {
  return read("OMPI_COMM_WORLD_SIZE").has_value() || read("PMIX_RANK").has_value();
}

int local_rank_by_mpi(const ReadVariable& read) {
  return number_in(read, {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"});
}

int processes_on_cores(const ReadVariable& read) {
  if (read("OMPI_MCA_orte_bound_at_launch")) return 1;
  return std::max(1, number_in(read, {"OMPI_COMM_WORLD_LOCAL_SIZE"}));
}

std::vector<std::string> mpi_settings(const ReadVariable& read) {
  const int size = number_in(read, {"OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"});
  const int local_size = number_in(read, {"OMPI_COMM_WORLD_LOCAL_SIZE"});
  const bool one_host = local_size > 0 ? local_size == size : number_in(read, {"SLURM_STEP_NUM_NODES"}) == 1;
  std::vector<std::pair<std::string, std::string>> wanted = {
      {"OMPI_MCA_pml", "ob1"},
      {"OMPI_MCA_btl", one_host ? "self,vader" : "self,vader,tcp"},
      {"OMPI_MCA_mpi_yield_when_idle", "1"},
  };
  // Over TCP a chunk (plan/plan.h) leaves at once. Otherwise its sender asks first, and both the question and the
  // answer wait behind the chunks that are on their way in the same connections.
  if (!one_host) {
    wanted.emplace_back("OMPI_MCA_btl_tcp_eager_limit", kAtOnceOverTcp);
    wanted.emplace_back("OMPI_MCA_btl_tcp_max_send_size", kAtOnceOverTcp);
  }
  if (!may_read_other_processes()) wanted.emplace_back("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
  std::vector<std::string> settings;
  for (const auto& [name, value] : wanted) {
    if (!read(name)) settings.push_back(name + "=" + value);
  }
  return settings;
}

std::optional<ProcessesOfMpirun> processes_of_mpirun(const ReadVariable& read) {
  const int size = number_in(read, {"OMPI_COMM_WORLD_SIZE"});
  if (size < 1 || number_in(read, {"OMPI_COMM_WORLD_LOCAL_SIZE"}) != size) return std::nullopt;
  const std::optional<std::string> folder = read("PMIX_SERVER_TMPDIR"), job = read("PMIX_NAMESPACE");
  const int rank = number_in(read, {"OMPI_COMM_WORLD_RANK"});
  if (!folder || folder->empty() || !job || job->find('/') != std::string::npos || rank >= size) return std::nullopt;
  return ProcessesOfMpirun{.rank = rank, .size = size, .folder = *folder + "/trainyard." + *job};
}

std::function<std::string(const std::string&)> share_by_folder(const ProcessesOfMpirun& processes,
                                                               std::chrono::milliseconds deadline) {
  return [processes, deadline, calls = std::make_shared<int>(0)](const std::string& of_first) {
    const std::string path = fmt::format("{}.{}", processes.folder, ++*calls);
    if (processes.rank != 0) return await_file(path, deadline);
    write_at_once(path, of_first);
    return of_first;
  };
}

}  // namespace trainyard::parallel
