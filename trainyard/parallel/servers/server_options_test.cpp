#include "trainyard/parallel/servers/server_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::server_options_test {
namespace {

using ::testing::HasSubstr;

TEST(ServerOptions, NameWhatIsInvalid) {
  const auto server = [](ParameterServerOptions options) { return core::message_of([&] { options.validate(); }); };
  EXPECT_EQ(server({}), "no error");
  EXPECT_EQ(server({.address = "[::1]:0"}), "no error");
  EXPECT_THAT(server({.cluster = {.workers = 0}}), HasSubstr("number of workers: expected 1 to 65536, got 0"));
  EXPECT_THAT(server({.cluster = {.servers = -1}}), HasSubstr("number of parameter servers"));
  EXPECT_THAT(server({.cluster = {.servers = 2}, .server = 2}),
              HasSubstr("no such parameter server: expected 0 to 1, got 2"));
  for (const char* const address : {"localhost", ":5000", "host:", "host:x", "host:70000", "host:123456", ""}) {
    EXPECT_THAT(server({.address = address}), HasSubstr("expected host:port")) << address;
  }
  const auto worker = [](ServerGroupOptions options) { return core::message_of([&] { options.validate(); }); };
  EXPECT_EQ(worker({.addresses = {"a:1"}}), "no error");
  EXPECT_THAT(worker({.worker = 1, .addresses = {"a:1"}}), HasSubstr("no such worker"));
  EXPECT_THAT(worker({.cluster = {.servers = 2}, .addresses = {"a:1"}}),
              HasSubstr("addresses of servers: expected 2 to 2, got 1"));
  EXPECT_THAT(worker({.addresses = {"a"}}), HasSubstr("expected host:port, got a"));
  EXPECT_THAT(worker({.addresses = {"a:1"}, .tls = {.ca = "x"}}), HasSubstr("TLS needs three files"));
}

TEST(ServerOptions, ModesHaveNames) {
  EXPECT_EQ(server_mode_name(ServerMode::kSynchronous), "synchronous");
  EXPECT_EQ(server_mode_name(ServerMode::kAsynchronous), "asynchronous");
  EXPECT_EQ(server_mode_name(ServerMode::kStaged), "staged");
}

}  // namespace
}  // namespace trainyard::parallel::server_options_test
