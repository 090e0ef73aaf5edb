// The rank of this process among the processes of a training. Launchers of GPU processes set the variables of torchrun:
//
//   RANK, WORLD_SIZE           which of how many processes this is
//   LOCAL_RANK                 which of those on this machine
//   MASTER_ADDR, MASTER_PORT   where rank 0 serves the others
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace trainyard::parallel {

struct ProcessRank {
  int rank = 0, size = 1, local_rank = 0;
  std::string master_address = "127.0.0.1";
  uint16_t master_port = 0;
  bool served_by_launcher = false;  // the port is that of torchrun's store (TORCHELASTIC_USE_AGENT_STORE)
};

using ReadVariable = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> read_environment(const std::string& name);
// Returns the number in a launcher's variable: whole, from 0 to 2^32 - 1. Returns nothing where the variable is not
// set, or has anything else.
std::optional<int64_t> number_of_launcher(const ReadVariable& read, const std::string& name);
// Reads those variables. Throws kInvalidArgument when one is missing or invalid, or when another launcher disagrees.
ProcessRank read_process_rank(const ReadVariable& read = read_environment);

// Returns whether `address` is the name of this machine, `own_name`, with a domain or without, and has a
// loopback address here, as in Debian's /etc/hosts: other machines have another address for the name. Throws as
// core::is_loopback().
bool is_own_name_of_loopback(const std::string& address, const std::string& own_name);

}  // namespace trainyard::parallel
