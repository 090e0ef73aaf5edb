// The processes of a training with parameter servers or a controller, and which of them this one is: tf_cnn_benchmarks'
// job_name, task_index and lists of hosts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/core/flags/option_flags.h"

namespace trainyard::frontends {

struct ClusterOptions {
  std::string job_name{};                               // "ps", "worker", "controller"; empty: no such processes
  std::vector<std::string> ps_hosts{}, worker_hosts{};  // "host:port" of each
  std::string controller_host{};                        // "host:port"
  int64_t task_index = 0;                               // which of its job this process is
  bool sums_gradients = false;                          // of all workers and replicas; false: averages them
  bool cross_replica_sync = true;                       // false: servers apply each worker's gradients as they come
  // PEM files by which servers and workers know each other: this process's certificate and its key, and the certificate
  // of who has signed those of all others. All three or none; none: connections are neither encrypted nor checked.
  std::string tls_cert{}, tls_key{}, tls_ca{};

  bool is_server() const { return job_name == "ps"; }
  bool is_worker() const { return job_name == "worker"; }
  bool is_controller() const { return job_name == "controller"; }
  // Returns "ps 1 (10.0.0.2:2222)", the name of this process in messages.
  [[nodiscard]] std::string process_name() const;
  // Throws kInvalidArgument where job_name is empty and another member is set, where a host has no port or is listed
  // twice, and where task_index is none of the job. `update` is the --variable_update, which decides whether
  // servers and a controller are needed.
  void validate(const std::string& update) const;
};

// A "host:port".
struct HostAddress {
  std::string host;
  uint16_t port = 0;
};
// Throws kInvalidArgument for a text that is none, naming the flag. "[::1]:2222" is one with the host ::1.
[[nodiscard]] HostAddress parse_host(const std::string& text, const std::string& flag);

// Declare the flags among those of the group "Processes".
[[nodiscard]] core::OptionFlags<ClusterOptions> cluster_flags();

}  // namespace trainyard::frontends
