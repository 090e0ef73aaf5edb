#include "trainyard/parallel/servers/server_options.h"

#include <string>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

constexpr int kMostTasks = 1 << 16;

void require_between(int value, int least, int most, const char* what) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("a cluster has an invalid number of {}", what),
                                            .expected = fmt::format("{} to {}", least, most),
                                            .actual = std::to_string(value)});
}

void require_index(int index, int count, const char* task) {
  if (index >= 0 && index < count) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("the cluster has no such {}", task),
                                            .expected = fmt::format("0 to {}", count - 1),
                                            .actual = std::to_string(index)});
}

void require_address(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  if (digits && colon > 0 && std::stoi(port) <= 65535) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "an address of a parameter server is invalid", .expected = "host:port", .actual = address});
}

}  // namespace

std::string_view server_mode_name(ServerMode mode) {
  switch (mode) {
    case ServerMode::kSynchronous:
      return "synchronous";
    case ServerMode::kAsynchronous:
      return "asynchronous";
    case ServerMode::kStaged:
      return "staged";
  }
  return "unknown";
}

void TlsFiles::validate() const {
  if (!used() || (!cert.empty() && !key.empty() && !ca.empty())) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "TLS needs three files",
               .expected = "a certificate, its key and the certificates of the authorities that are trusted",
               .actual = fmt::format("certificate '{}', key '{}', authorities '{}'", cert, key, ca),
               .remedy = "pass --tls_cert, --tls_key and --tls_ca"});
}

void ClusterOptions::validate() const {
  require_between(workers, 1, kMostTasks, "workers");
  require_between(servers, 1, kMostTasks, "parameter servers");
  require_between(replicas_per_worker, 1, kMostTasks, "replicas");
  if (!variables_as || *variables_as == at::kHalf || *variables_as == at::kBFloat16) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = "parameter servers cannot keep variables as such numbers",
                                            .expected = "Half or BFloat16",
                                            .actual = at::toString(*variables_as)});
}

void ParameterServerOptions::validate() const {
  cluster.validate();
  require_index(server, cluster.servers, "parameter server");
  require_address(address);
  tls.validate();
}

void ServerGroupOptions::validate() const {
  cluster.validate();
  require_index(worker, cluster.workers, "worker");
  require_between(static_cast<int>(addresses.size()), cluster.servers, cluster.servers, "addresses of servers");
  for (const std::string& address : addresses) require_address(address);
  tls.validate();
}

}  // namespace trainyard::parallel
