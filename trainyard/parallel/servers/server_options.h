// Options of parameter servers and of the workers that use them (docs/design/parameter_servers.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trainyard/parallel/process_group/liveness.h"

namespace trainyard::parallel {

// How servers apply what workers push.
enum class ServerMode : uint8_t {
  kSynchronous,   // once all workers have pushed a step, by one update; workers read the values behind it
  kAsynchronous,  // each push by an update of its own, when it comes
  kStaged,        // as kSynchronous, but workers read the values of one update before
};
// Returns "synchronous", "asynchronous" or "staged".
[[nodiscard]] std::string_view server_mode_name(ServerMode mode);

// How servers combine the pushes of all workers in kSynchronous and kStaged. The terms are added in worker order.
enum class ServerReduction : uint8_t { kMean, kSum };

// PEM files for TLS. All three are given, or none. Server and worker each prove themselves by the certificate in `cert`
// with the private key in `key`, and accept peers whose certificate an authority in `ca` has signed; workers also
// compare a server's certificate with the host name, or the number, in its address.
struct TlsFiles {
  std::string cert{};  // --tls_cert
  std::string key{};   // --tls_key
  std::string ca{};    // --tls_ca
  [[nodiscard]] bool used() const { return !cert.empty() || !key.empty() || !ca.empty(); }
  // Throws kInvalidArgument unless all are given or none.
  void validate() const;
};

// What all servers and workers of a cluster have alike: servers refuse workers that say something else.
struct ClusterOptions {
  int workers = 1;
  int servers = 1;
  int replicas_per_worker = 1;  // each worker pushes their reduced gradients
  ServerMode mode = ServerMode::kSynchronous;
  ServerReduction reduction = ServerReduction::kMean;
  // kHalf or kBFloat16: values and slots are, after each update, numbers that such floats hold.
  std::optional<at::ScalarType> variables_as{};
  void validate() const;  // throws kInvalidArgument
};

struct ParameterServerOptions {
  ClusterOptions cluster{};
  int server = 0;  // which of the servers this is: --task_index
  // Where it listens: "host:port"; port 0 selects a free one. Warns about a host that other machines can reach when TLS
  // is not used.
  std::string address = "127.0.0.1:0";
  TlsFiles tls{};
  // How long it waits for workers to come, and for a worker that others wait for or that sends no heartbeat.
  RankDeadlines deadlines{};
  int intra_op_threads = 1;                // of the thread that updates
  int64_t most_bytes = int64_t{64} << 30;  // of values: workers cannot register larger models
  void validate() const;                   // throws kInvalidArgument
};

struct ServerGroupOptions {
  ClusterOptions cluster{};
  int worker = 0;                        // which of the workers this is; 0 is the chief
  std::vector<std::string> addresses{};  // of all servers, "host:port", in their order
  TlsFiles tls{};
  RankDeadlines deadlines{};
  void validate() const;  // throws kInvalidArgument
};

// Returns whether this build has parameter servers, which need gRPC.
[[nodiscard]] bool has_parameter_servers();

}  // namespace trainyard::parallel
