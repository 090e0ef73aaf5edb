#include "trainyard/parallel/servers/server_options.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::server_options_test {
namespace {

using core::Says;

TEST(ServerOptions, NameWhatIsInvalid) {
  const auto server = [](ParameterServerOptions options) { return core::message_of([&] { options.validate(); }); };
  EXPECT_EQ(server({}), "no error");
  EXPECT_EQ(server({.cluster = {.variables_as = at::kHalf}}), "no error");
  EXPECT_THAT(server({.cluster = {.variables_as = at::kInt}}), Says("expected Half or BFloat16, got Int"));
  EXPECT_EQ(server({.address = "[::1]:0"}), "no error");
  const std::vector<std::pair<int ClusterOptions::*, const char*>> counts = {
      {&ClusterOptions::workers, "number of workers"},
      {&ClusterOptions::servers, "number of parameter servers"},
      {&ClusterOptions::replicas_per_worker, "number of replicas"}};
  for (const auto& [count, name] : counts) {
    for (const int value : {-1, 0, 1, 65536, 65537}) {
      ClusterOptions cluster;
      cluster.*count = value;
      const std::string said = server({.cluster = cluster});
      if (value == 1 || value == 65536) {
        EXPECT_EQ(said, "no error") << name;
      } else {
        EXPECT_THAT(said, Says(name, "expected 1 to 65536, got " + std::to_string(value)));
      }
    }
  }
  EXPECT_EQ(server({.cluster = {.servers = 2}, .server = 1}), "no error");
  for (const int number : {-1, 2}) {
    EXPECT_THAT(server({.cluster = {.servers = 2}, .server = number}),
                Says("no such parameter server", "expected 0 to 1, got " + std::to_string(number)));
  }
  for (const char* const address :
       {"localhost", ":5000", "host:", "host:x", "host:65536", "host:70000", "host:123456", "host:000001", ""}) {
    EXPECT_THAT(server({.address = address}),
                Says("expected host:port", std::string(*address != 0 ? ", got " : "") + address));
  }
  for (const char* const address : {"h:0", "h:65535", "h:00001"}) EXPECT_EQ(server({.address = address}), "no error");
  const auto worker = [](ServerGroupOptions options) { return core::message_of([&] { options.validate(); }); };
  EXPECT_EQ(worker({.addresses = {"a:1"}}), "no error");
  EXPECT_EQ(worker({.cluster = {.workers = 2}, .worker = 1, .addresses = {"a:1"}}), "no error");
  for (const int number : {-1, 2}) {
    EXPECT_THAT(worker({.cluster = {.workers = 2}, .worker = number, .addresses = {"a:1"}}),
                Says("no such worker", "expected 0 to 1, got " + std::to_string(number)));
  }
  EXPECT_THAT(worker({.cluster = {.workers = 0}, .addresses = {"a:1"}}), Says("workers: expected 1 to 65536, got 0"));
  for (const size_t given : {1, 3}) {
    EXPECT_THAT(worker({.cluster = {.servers = 2}, .addresses = std::vector<std::string>(given, "a:1")}),
                Says("addresses of servers: expected 2 to 2, got " + std::to_string(given)));
  }
  EXPECT_THAT(worker({.cluster = {.servers = 2}, .addresses = {"a:1", "a"}}), Says("expected host:port, got a"));
  EXPECT_THAT(worker({.addresses = {"a:1"}, .tls = {.ca = "x"}}), Says("TLS needs three files"));
  EXPECT_THAT(worker({.addresses = {"a:1"}, .tls = {.cert = "c", .key = "k"}}),
              Says("got certificate 'c', key 'k', authorities ''; pass --tls_cert, --tls_key and --tls_ca"));
  EXPECT_THAT(worker({.addresses = {"a:1"}, .tls = {.cert = "c", .ca = "x"}}),
              Says("got certificate 'c', key '', authorities 'x'"));
  EXPECT_THAT(worker({.addresses = {"a:1"}, .tls = {.key = "k", .ca = "x"}}),
              Says("got certificate '', key 'k', authorities 'x'"));
}

TEST(ServerOptions, ModesHaveNames) {
  EXPECT_EQ(server_mode_name(ServerMode::kSynchronous), "synchronous");
  EXPECT_EQ(server_mode_name(ServerMode::kAsynchronous), "asynchronous");
  EXPECT_EQ(server_mode_name(ServerMode::kStaged), "staged");
}

}  // namespace
}  // namespace trainyard::parallel::server_options_test
