// A text as mpirun's --host, as a file of hosts and as the spec of an all-reduce. What is accepted is written and read
// again as the same.
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/all_reduce_spec.h"
#include "trainyard/parallel/launch/hosts.h"

namespace {

using namespace trainyard::parallel;

void check(const std::function<std::vector<HostSlots>()>& parse) {
  std::string written;
  try {
    const std::vector<HostSlots> hosts = parse();
    if (hosts.empty()) return;
    written = format_hosts(hosts);
    for (const HostSlots& host : without_slot_of(hosts, hosts.front().name)) {
      if (host.slots < 1) std::abort();
    }
  } catch (const trainyard::core::Error&) {
    return;  // refused
  }
  // A file's names may hold what separates those of --host.
  if (written.find_first_of(":,") != written.rfind(':')) return;
  if (format_hosts(parse_hosts(written)) != written) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  check([&] { return parse_hosts(text); });
  check([&] { return parse_host_file("hosts", text); });
  try {
    const std::vector<AllReduceRange> ranges = parse_all_reduce_spec(text);
    if (parse_all_reduce_spec(all_reduce_spec_text(ranges)) != ranges) std::abort();
  } catch (const trainyard::core::Error&) {
    // Refused.
  }
  return 0;
}
