// Both sides of a connection prove who they are. The certificates are made by tools/golden/tls_files.sh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/testing/server_cluster.h"

namespace trainyard::parallel::server_tls_test {
namespace {

using ::testing::HasSubstr;

const std::string kFiles = std::string(TRAINYARD_SOURCE_DIR) + "/trainyard/parallel/testdata/tls/";
const TlsFiles kOwn{.cert = kFiles + "own.pem", .key = kFiles + "own.key", .ca = kFiles + "own_ca.pem"};
const TlsFiles kOther{.cert = kFiles + "other.pem", .key = kFiles + "other.key", .ca = kFiles + "other_ca.pem"};

ParameterServer::MakeOptimizers sgd() {
  return {[](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); }};
}

// Returns what a worker with these files gets from a server with kOwn: "joined", or its error.
std::string join_with(const TlsFiles& tls, const std::string& host = "127.0.0.1") {
  const RankDeadlines short_start{.start = std::chrono::milliseconds(1500), .step = std::chrono::seconds(30)};
  ParameterServer server({.tls = kOwn}, sgd());
  const std::string address = fmt::format("{}:{}", host, server.port());
  ServerGroup group({.addresses = {address}, .tls = tls, .deadlines = short_start});
  nn::ParameterSet set;
  set.declare({.name = "w", .shape = {3}});
  set.allocate();
  const std::unique_ptr<optim::Optimizer> optimizer = sgd()[0](set);
  const auto error = core::error_of([&] { group.join(set, {optimizer.get()}); });
  if (error) return error->what();
  group.leave();
  server.wait();
  return "joined";
}

TEST(ServerTls, BothSidesWithCertificatesOfOneAuthorityConnect) {
  EXPECT_EQ(join_with(kOwn), "joined");
}

TEST(ServerTls, AWorkerWithoutCertificateIsRefused) {
  EXPECT_THAT(join_with({}), HasSubstr("in vain for parameter server 0"));
}

// It trusts the server, and has a certificate, but one that the server's authority has not signed.
TEST(ServerTls, AWorkerWithAnotherAuthoritysCertificateIsRefused) {
  EXPECT_THAT(join_with({.cert = kOther.cert, .key = kOther.key, .ca = kOwn.ca}),
              HasSubstr("in vain for parameter server 0"));
}

TEST(ServerTls, AServerOfAnotherAuthorityIsRefused) {
  EXPECT_THAT(join_with({.cert = kOwn.cert, .key = kOwn.key, .ca = kOther.ca}),
              HasSubstr("in vain for parameter server 0"));
}

// 127.0.0.2 is the same server, by an address that its certificate does not have.
TEST(ServerTls, AServerWhoseCertificateHasAnotherAddressIsRefused) {
  EXPECT_THAT(join_with(kOwn, "127.0.0.2"), HasSubstr("in vain for parameter server 0"));
}

TEST(ServerTls, FilesThatAreMissingAreNamed) {
  EXPECT_THAT(core::message_of([] { TlsFiles{.cert = "a", .key = "b"}.validate(); }),
              HasSubstr("pass --tls_cert, --tls_key and --tls_ca"));
  TlsFiles missing = kOwn;
  missing.key = kFiles + "nothing.key";
  EXPECT_THAT(core::message_of([&] { ParameterServer({.tls = missing}, sgd()); }, core::ErrorCode::kNotFound),
              HasSubstr("nothing.key"));
  TlsFiles swapped = kOwn;
  swapped.key = kOther.key;
  EXPECT_THAT(core::message_of([&] { ParameterServer({.tls = swapped}, sgd()); }, core::ErrorCode::kIo),
              HasSubstr("whether the TLS files hold a certificate and its key"));
}

}  // namespace
}  // namespace trainyard::parallel::server_tls_test
