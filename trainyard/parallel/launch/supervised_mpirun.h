// Launch's view of mpirun and its keeper.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "trainyard/core/sockets/socket.h"
#include "trainyard/parallel/launch/lines.h"
#include "trainyard/parallel/launch/mpirun_command.h"
#include "trainyard/parallel/launch/process.h"

namespace trainyard::parallel {

class SupervisedMpirun {
 public:
  // Starts both. Agents connect to `address` and send `token`. For the other parameters see mpirun_command().
  SupervisedMpirun(const LaunchOptions& options, const RankCommand& command, const Network* network,
                   const std::vector<HostSlots>& hosts, const std::string& address, const std::string& token);
  // Ends them, which takes ten seconds at most.
  ~SupervisedMpirun();
  SupervisedMpirun(const SupervisedMpirun&) = delete;
  SupervisedMpirun& operator=(const SupervisedMpirun&) = delete;

  // Returns the descriptors to poll() for reading: mpirun's own output.
  std::vector<int> descriptors() const;
  // Returns the whole lines that have arrived, without waiting.
  std::string read_lines();
  // Asks the keeper to end mpirun and all below it.
  void ask_to_end();
  // Returns whether mpirun has closed its streams, as it does when it ends; read_lines() sees that.
  bool is_ending() const { return !pipes_[0].reads.valid() && !pipes_[1].reads.valid(); }
  // Returns whether both have ended.
  bool has_ended();
  // Returns "mpirun ended with code 137", ... Both must have ended.
  std::string description() const;
  int code() const { return end_.code(); }

 private:
  struct Pipe {
    core::Socket reads;
    LineSplitter lines;
  };

  MpirunFolders folders_;
  std::vector<core::Socket> held_;  // mark the folders as in use
  core::Socket control_;            // the keeper keeps running while it is open
  std::array<Pipe, 2> pipes_;
  pid_t keeper_ = 0;
  ProcessEnd end_;  // exit status of the keeper, which returns mpirun's code
};

}  // namespace trainyard::parallel
