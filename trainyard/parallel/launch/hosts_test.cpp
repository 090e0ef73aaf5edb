#include "trainyard/parallel/launch/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::hosts_test {
namespace {

TEST(Hosts, AreReadAndWritten) {
  EXPECT_EQ(format_hosts(parse_hosts("a:2,b.example.org,10.0.0.3:12")), "a:2,b.example.org:1,10.0.0.3:12");
  for (const char* wrong : {"", "a,", "a:0", "a:x", "a:2x", "a b", "-x", "a:5000"}) {
    EXPECT_EQ(core::thrown_by([&] { parse_hosts(wrong); }).code(), core::ErrorCode::kInvalidArgument) << wrong;
  }
}

TEST(Hosts, OfAFileHaveSlotsAndComments) {
  EXPECT_EQ(format_hosts(parse_host_file("hosts", "# all\na slots=2\n\nb slots=1 # one\n")), "a:2,b:1");
  const core::Error wrong = core::thrown_by([] { parse_host_file("hosts", "a slots=2\nb slots=two\n"); });
  EXPECT_TRUE(core::says(wrong, "hosts line 2")) << wrong.what();
  for (const char* text : {"", "# none\n", "a slots=2 max_slots=3\n", "a 2\n", "-a\n"}) {
    EXPECT_EQ(core::thrown_by([&] { parse_host_file("hosts", text); }).code(), core::ErrorCode::kInvalidArgument);
  }
}

// mpirun starts as many ranks there as the host has cores: one would put the processes of a cluster elsewhere.
TEST(Hosts, OfAFileSayHowManyRanksTheyTake) {
  EXPECT_THAT(core::message_of([] { parse_host_file("hosts", "a slots=2\nb  # all\n"); }),
              core::Says("a host has no number of ranks", "hosts line 2: expected NAME slots=RANKS, got 'b  # all'",
                         "add slots="));
}

TEST(Hosts, LoseTheSlotOfAFailedRank) {
  const auto hosts = parse_hosts("a:2,b.example.org:1");
  EXPECT_EQ(format_hosts(without_slot_of(hosts, "a.example.org")), "a:1,b.example.org:1");
  EXPECT_EQ(format_hosts(without_slot_of(hosts, "b")), "a:2");
  EXPECT_EQ(format_hosts(without_slot_of(hosts, "c")), "a:2,b.example.org:1");
  const auto of_two_domains = parse_hosts("a.east:2,a.west:2");
  EXPECT_EQ(format_hosts(without_slot_of(of_two_domains, "a.west")), "a.east:2,a.west:1");
  EXPECT_EQ(format_hosts(without_slot_of(of_two_domains, "a.east")), "a.east:1,a.west:2");
}

TEST(Hosts, ThatAreListedByAddressLoseASlotByIt) {
  const auto hosts = parse_hosts("10.0.0.3:2,10.0.0.4:1,a:1");
  EXPECT_EQ(format_hosts(without_slot_of(hosts, "b", "10.0.0.4")), "10.0.0.3:2,a:1");
  EXPECT_EQ(format_hosts(without_slot_of(hosts, "a", "10.0.0.3")), "10.0.0.3:2,10.0.0.4:1") << "its name comes first";
  EXPECT_EQ(format_hosts(without_slot_of(hosts, "b", "10.0.0.5")), "10.0.0.3:2,10.0.0.4:1,a:1");
}

// As the map of Open MPI 4.1's mpirun shows it (--display-map).
TEST(Hosts, AreFilledWithRanksAsMpirunDoes) {
  const auto ordered = [](std::string_view hosts) { return format_hosts(in_order_of_ranks(parse_hosts(hosts))); };
  EXPECT_EQ(ordered("a:1,b:1,a:2"), "a:3,b:1");
  EXPECT_EQ(ordered("a:1,b:2,127.0.0.1:1"), "127.0.0.1:1,a:1,b:2");
  EXPECT_EQ(ordered("a:1,localhost:1,b:1,127.0.0.1:2"), "localhost:3,a:1,b:1");
}

TEST(Network, GivesTheAddressOfThisMachine) {
  const Network loopback = find_network("127.0.0.0/8");
  EXPECT_EQ(loopback.own_address, "127.0.0.1");
  EXPECT_TRUE(loopback.is_loopback);
  // A reserved network (RFC 1112): no machine has an address in it.
  const core::Error elsewhere = core::thrown_by([] { find_network("240.0.0.0/8"); });
  EXPECT_TRUE(core::says(elsewhere, "127.0.0.1")) << elsewhere.what();
  for (const char* wrong : {"10.0.0.0", "10.0.0/24", "10.0.0.0/33", "10.0.0.0/0", "10.0.0.0/x", "lo"}) {
    EXPECT_EQ(core::thrown_by([&] { find_network(wrong); }).code(), core::ErrorCode::kInvalidArgument) << wrong;
  }
}

TEST(Hosts, HaveAtMost4096Slots) {
  EXPECT_EQ(format_hosts(parse_hosts("a:4096")), "a:4096");
  EXPECT_EQ(format_hosts(parse_host_file("hosts", "a slots=4096\n")), "a:4096");
  EXPECT_THAT(core::message_of([] { parse_hosts("b:1,a:4097"); }),
              core::Says("--hosts: expected NAME or NAME:RANKS, separated by commas, got 'a:4097'"));
  EXPECT_THAT(core::message_of([] { parse_host_file("hosts", "b slots=1\na slots=4097\n"); }),
              core::Says("hosts line 2: expected NAME slots=RANKS, got 'a slots=4097'"));
}

// What is behind the bits of the network does not count, and each of its bits does.
TEST(Network, IsAsLargeAsItsBitsSay) {
  EXPECT_EQ(find_network("127.9.9.9/8").own_address, "127.0.0.1");
  EXPECT_EQ(find_network("127.0.0.0/31").own_address, "127.0.0.1");
  EXPECT_EQ(find_network("127.0.0.1/32").own_address, "127.0.0.1");
  EXPECT_EQ(core::code_of([] { find_network("127.0.0.2/31"); }), core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(core::code_of([] { find_network("127.0.0.0/32"); }), core::ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace trainyard::parallel::hosts_test
