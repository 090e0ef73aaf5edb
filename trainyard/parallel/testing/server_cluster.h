// Parameter servers and workers on threads of a test, over loopback.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/servers/parameter_server.h"
#include "trainyard/parallel/servers/server_group.h"

namespace trainyard::parallel {

// Deadlines that no test reaches unless something is broken.
inline constexpr RankDeadlines kPatientDeadlines{.start = std::chrono::seconds(60), .step = std::chrono::seconds(30)};

class ServerCluster {
 public:
  ServerCluster(ClusterOptions cluster, const ParameterServer::MakeOptimizers& make_optimizers,
                RankDeadlines deadlines = kPatientDeadlines, const TlsFiles& tls = {})
      : cluster_(cluster), deadlines_(deadlines) {
    for (int s = 0; s < cluster.servers; ++s) {
      servers_.push_back(std::make_unique<ParameterServer>(
          ParameterServerOptions{.cluster = cluster, .server = s, .tls = tls, .deadlines = deadlines},
          make_optimizers));
      addresses_.push_back(fmt::format("127.0.0.1:{}", servers_.back()->port()));
    }
  }

  ParameterServer& server(int index) { return *servers_.at(static_cast<size_t>(index)); }
  void end_server(int index) { servers_.at(static_cast<size_t>(index)).reset(); }
  const std::vector<std::string>& addresses() const { return addresses_; }
  ServerGroupOptions worker(int index) const {
    return {.cluster = cluster_, .worker = index, .addresses = addresses_, .deadlines = deadlines_};
  }
  std::shared_ptr<ServerGroup> join(int index) const { return std::make_shared<ServerGroup>(worker(index)); }

  // Runs `work` on a thread for each worker, and waits for all of them. Each leaves behind its work.
  void on_workers(const std::function<void(int worker, const std::shared_ptr<ServerGroup>& group)>& work) const {
    std::vector<core::Thread> threads;
    for (int w = 0; w < cluster_.workers; ++w) {
      threads.emplace_back(core::ThreadOptions{}, [this, &work, w] {
        const auto group = join(w);
        work(w, group);
        group->leave();
      });
    }
    for (core::Thread& thread : threads) thread.join();
  }
  void wait() {
    for (const auto& server : servers_) server->wait();
  }

 private:
  const ClusterOptions cluster_;
  const RankDeadlines deadlines_;
  std::vector<std::unique_ptr<ParameterServer>> servers_;
  std::vector<std::string> addresses_;
};

}  // namespace trainyard::parallel
