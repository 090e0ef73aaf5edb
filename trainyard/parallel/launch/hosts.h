// The machines that ranks run on, as mpirun's --host and --hostfile name them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainyard::parallel {

struct HostSlots {
  std::string name;
  int slots = 1;  // how many ranks may run on it
};

// Reads "a:2,b:2". Throws kInvalidArgument.
std::vector<HostSlots> parse_hosts(std::string_view text);
// Reads lines "a slots=2"; a comment begins with '#'. Throws kInvalidArgument, with the line, for any other line, also
// one without slots, of which mpirun takes the number of that host's cores. `path` is for messages.
std::vector<HostSlots> parse_host_file(const std::string& path, std::string_view text);
// Returns "a:2,b:2".
std::string format_hosts(const std::vector<HostSlots>& hosts);

// Removes a slot from the host of this name, as `hostname` prints it there, with its domain or without, or from the one
// that is listed by this address. Hosts without slots are left out. What none of them has changes nothing.
std::vector<HostSlots> without_slot_of(std::vector<HostSlots> hosts, std::string_view name,
                                       std::string_view address = "");

// Returns the hosts as mpirun fills them with ranks: this machine first, whether it is listed by a name or by an IPv4
// address, and a host that is listed again with all its slots where it was listed first.
std::vector<HostSlots> in_order_of_ranks(const std::vector<HostSlots>& hosts);

// An IPv4 network, "10.0.0.0/24".
struct Network {
  std::string text;
  std::string own_address;  // address of this machine in that network
  bool is_loopback = false;
};
// Parses a network and finds this machine's address in it. Throws kInvalidArgument for an invalid network, and when
// this machine has no address in it, with the addresses that it has.
Network find_network(const std::string& text);

}  // namespace trainyard::parallel
