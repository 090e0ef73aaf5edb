// A build without gRPC says what is missing. Compiled in such a build.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/servers/parameter_server.h"
#include "trainyard/parallel/servers/server_group.h"

namespace trainyard::parallel::without_grpc_test {
namespace {

using ::testing::HasSubstr;

TEST(WithoutGrpc, ServersAndWorkersSayWhatIsMissing) {
  EXPECT_FALSE(has_parameter_servers());
  EXPECT_THAT(core::message_of([] { ParameterServer({}, {}); }, core::ErrorCode::kUnsupported),
              HasSubstr("install libgrpc++-dev"));
  EXPECT_THAT(core::message_of([] { ServerGroup({.addresses = {"127.0.0.1:1"}}); }, core::ErrorCode::kUnsupported),
              HasSubstr("install libgrpc++-dev"));
}

}  // namespace
}  // namespace trainyard::parallel::without_grpc_test
