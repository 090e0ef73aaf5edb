#include "trainyard/parallel/process_group/process_hub.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/seconds_of.h"
#include "trainyard/parallel/process_group/group_connection.h"
#include "trainyard/parallel/process_group/group_message.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::parallel::process_hub_test {
namespace {

using core::Error, core::ErrorCode, core::thrown_by, std::chrono::milliseconds, std::chrono::seconds;

constexpr RankDeadlines kDeadlines{.start = seconds(20), .step = seconds(20)};

// A hub, and what connects to it as ranks and as strangers do.
class ProcessHubTest : public ::testing::Test {
 protected:
  explicit ProcessHubTest(RankDeadlines deadlines = kDeadlines) : deadlines_(deadlines) {
    core::Socket listening = core::listen_at("127.0.0.1", 0);
    port_ = core::port_of(listening);
    hub_.emplace(std::move(listening), ProcessHubOptions{.size = 2, .token = "secret", .deadlines = deadlines});
  }
  core::Socket connect() const { return core::connect_to("127.0.0.1", port_, seconds(5)); }
  std::unique_ptr<GroupConnection> join(int rank, std::function<void(const Error&)> last_resort = {}) const {
    return std::make_unique<GroupConnection>(
        connect(), GroupConnectionOptions{.hello = {.token = "secret", .rank = rank, .size = 2},
                                          .deadlines = deadlines_,
                                          .last_resort = std::move(last_resort),
                                          .grace = milliseconds(100)});
  }
  // Sends these bytes, and waits until the hub hangs up.
  void expect_hung_up(const std::string& bytes) const {
    const core::Socket socket = connect();
    ASSERT_EQ(::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    const auto until = std::chrono::steady_clock::now() + seconds(10);
    char byte = 0;
    while (::recv(socket.descriptor(), &byte, 1, 0) != 0) {
      if (errno != EAGAIN) break;  // the connection was reset
      ASSERT_LT(std::chrono::steady_clock::now(), until);
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  static std::string hello(const std::string& token, int rank) {
    return core::encode_frame(static_cast<uint8_t>(GroupMessage::kHello),
                              encode(Hello{.token = token, .rank = rank, .size = 2}));
  }

  RankDeadlines deadlines_;
  uint16_t port_ = 0;
  std::optional<ProcessHub> hub_;
};

TEST_F(ProcessHubTest, StrangersDoNotDisturbTheRanks) {
  const auto first = join(0);
  expect_hung_up("GET / HTTP/1.1\r\n\r\n");
  expect_hung_up(hello("guess", 1));
  expect_hung_up(core::encode_frame(static_cast<uint8_t>(GroupMessage::kLeave), ""));
  expect_hung_up(
      core::encode_frame(static_cast<uint8_t>(GroupMessage::kHello), std::string(kLongestGroupHello + 1, 'x')));
  std::vector<core::Socket> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(connect());
  const auto second = join(1);
  first->await_welcome();
  second->await_welcome();
  EXPECT_FALSE(first->failure());
}

// Returns the body of the next message of this kind; nothing when the hub hangs up or says none within ten seconds.
std::optional<std::string> await_message(core::FrameConnection& connection, GroupMessage wanted) {
  const auto until = std::chrono::steady_clock::now() + seconds(10);
  while (std::chrono::steady_clock::now() < until) {
    std::vector<core::Frame> frames;
    const bool open = connection.receive(frames);
    for (const core::Frame& frame : frames) {
      if (frame.kind == static_cast<uint8_t>(wanted)) return frame.body;
    }
    if (!open) return std::nullopt;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return std::nullopt;
}

// All have said who they are before the hub looks at one of them.
TEST(ProcessHubOfManyRanks, HearsAllThatComeAtOnce) {
  constexpr int kRanks = 100;
  core::Socket listening = core::listen_at("127.0.0.1", 0);
  const uint16_t port = core::port_of(listening);
  std::vector<core::FrameConnection> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back(core::connect_to("127.0.0.1", port, seconds(5)), kLongestGroupMessage);
    ranks.back().send(static_cast<uint8_t>(GroupMessage::kHello),
                      encode(Hello{.token = "secret", .rank = rank, .size = kRanks}));
    ASSERT_TRUE(ranks.back().flush());
  }
  const ProcessHub hub(std::move(listening), {.size = kRanks, .token = "secret", .deadlines = kDeadlines});
  for (core::FrameConnection& rank : ranks) {
    ASSERT_TRUE(await_message(rank, GroupMessage::kWelcome)) << &rank - ranks.data();
  }
  ranks.clear();  // before the hub, which waits for the end of rank 0's
}

// Rank 0 says why it fails behind more than the hub reads at once, and the hub ends with it. Texts that the others have
// not all sent stay in the hub, which so has nothing else to say.
TEST(ProcessHubEnd, IsBehindWhatRank0SaysLast) {
  for (int round = 0; round < 10; ++round) {
    core::Socket listening = core::listen_at("127.0.0.1", 0);
    const uint16_t port = core::port_of(listening);
    std::optional<ProcessHub> hub;
    hub.emplace(std::move(listening), ProcessHubOptions{.size = 2, .token = "", .deadlines = kDeadlines});
    GroupConnection second(core::connect_to("127.0.0.1", port, seconds(5)),
                           {.hello = {.token = "", .rank = 1, .size = 2}, .deadlines = kDeadlines});
    core::FrameConnection first(core::connect_to("127.0.0.1", port, seconds(5)), kLongestGroupMessage);
    const auto say = [&first](GroupMessage message, const std::string& body) {
      first.send(static_cast<uint8_t>(message), body);
    };
    say(GroupMessage::kHello, encode(Hello{.token = "", .rank = 0, .size = 2}));
    ASSERT_TRUE(first.flush());
    ASSERT_TRUE(await_message(first, GroupMessage::kWelcome));
    for (int call = 1; call <= 16; ++call) {
      say(GroupMessage::kText,
          encode(
              SharedTexts{.call = call, .what = "it", .from_all = true, .texts = {std::string(size_t{1} << 20, 'x')}}));
    }
    say(GroupMessage::kFailed, encode(Error(ErrorCode::kPeerFailed, "the disk of rank 0 is full")));
    while (first.has_unsent()) ASSERT_TRUE(first.flush());
    ASSERT_EQ(::shutdown(first.descriptor(), SHUT_WR), 0);
    hub.reset();
    second.await_gone();
    ASSERT_TRUE(second.failure());
    EXPECT_TRUE(says(*second.failure(), "the disk of rank 0 is full")) << round << ": " << second.failure()->what();
  }
}

TEST_F(ProcessHubTest, WhereNoMoreFilesMayBeOpenTheErrorNamesTheLimit) {
  core::FrameConnection first(connect(), kLongestGroupMessage);
  first.send(static_cast<uint8_t>(GroupMessage::kHello), encode(Hello{.token = "secret", .rank = 0, .size = 2}));
  first.send(static_cast<uint8_t>(GroupMessage::kNote), "it is here");
  ASSERT_TRUE(first.flush());
  ASSERT_TRUE(await_message(first, GroupMessage::kNote));
  struct Limit {
    rlimit before{};
    Limit() { ::getrlimit(RLIMIT_NOFILE, &before); }
    ~Limit() { ::setrlimit(RLIMIT_NOFILE, &before); }
  } const limit;
  // One more file: this end of the connection.
  const int next = ::open("/dev/null", O_RDONLY);
  ::close(next);
  const rlimit lower{.rlim_cur = static_cast<rlim_t>(next) + 1, .rlim_max = limit.before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lower), 0);
  const core::Socket second = connect();
  const auto failed = await_message(first, GroupMessage::kFailed);
  ASSERT_TRUE(failed);
  const Error error = decode_error(*failed);
  EXPECT_EQ(error.code(), ErrorCode::kNoSpace);
  for (const std::string& text : {std::string("rank 0"), std::to_string(next + 1), std::string("ulimit -n")}) {
    EXPECT_TRUE(says(error, text)) << error.what();
  }
}

TEST_F(ProcessHubTest, ARankThatSendsNoMessageEndsTheGroup) {
  const auto first = join(0);
  core::Socket second = connect();
  const std::string bytes = hello("secret", 1) + "no message";
  ASSERT_GT(::send(second.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  first->await_gone();
  ASSERT_TRUE(first->failure());
  EXPECT_TRUE(says(*first->failure(), "a message of rank 1")) << first->failure()->what();
}

// The frame is whole, what is in it is not.
TEST_F(ProcessHubTest, ARankWhoseMessageMakesNoSenseEndsTheGroup) {
  const auto first = join(0);
  core::Socket second = connect();
  const std::string bytes =
      hello("secret", 1) + core::encode_frame(static_cast<uint8_t>(GroupMessage::kBeat), "no activity");
  ASSERT_GT(::send(second.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  first->await_gone();
  ASSERT_TRUE(first->failure());
  EXPECT_TRUE(says(*first->failure(), "a message of rank 1")) << first->failure()->what();
}

// Ranks would take its text for rank 0's.
TEST_F(ProcessHubTest, OnlyRank0SpeaksAlone) {
  const auto first = join(0), second = join(1);
  second->send(GroupMessage::kText, encode(SharedTexts{.call = 1, .what = "it", .texts = {"mine"}}));
  first->await_gone();
  ASSERT_TRUE(first->failure());
  EXPECT_TRUE(says(*first->failure(), "it is rank 0's turn to speak: a message of rank 1")) << first->failure()->what();
}

// Who is named is who comes second.
TEST_F(ProcessHubTest, RanksMustShareTheSame) {
  const auto first = join(0), second = join(1);
  const auto say = [](GroupConnection& rank, const std::string& what) {
    rank.send(GroupMessage::kText, encode(SharedTexts{.call = 1, .what = what, .from_all = true, .texts = {"x"}}));
  };
  say(*first, "one");
  say(*second, "another");
  first->await_gone();
  ASSERT_TRUE(first->failure());
  EXPECT_EQ(first->failure()->code(), ErrorCode::kInternal);
  const std::string said = first->failure()->what(), problem = "ranks agree on different things: ";
  EXPECT_TRUE(said == problem + "rank 1: expected one, got another" ||
              said == problem + "rank 0: expected another, got one")
      << said;
}

TEST_F(ProcessHubTest, ARankHasOneText) {
  const auto first = join(0), second = join(1);
  second->send(GroupMessage::kText,
               encode(SharedTexts{.call = 1, .what = "it", .from_all = true, .texts = {"one", "two"}}));
  first->await_gone();
  ASSERT_TRUE(first->failure());
  EXPECT_TRUE(says(*first->failure(), "a rank has one text: a message of rank 1")) << first->failure()->what();
}

TEST_F(ProcessHubTest, ARankMustBeOneOfTheGroup) {
  const auto first = join(0);
  const core::Socket second = connect();
  const std::string bytes = hello("secret", 2);
  ASSERT_GT(::send(second.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  first->await_gone();
  ASSERT_TRUE(first->failure());
  EXPECT_TRUE(says(*first->failure(), "ranks disagree on how many they are: rank 2: expected 2 as on rank 0, got 2"))
      << first->failure()->what();
}

class ProcessHubWithShortDeadlines : public ProcessHubTest {
 protected:
  ProcessHubWithShortDeadlines() : ProcessHubTest({.start = milliseconds(700), .step = milliseconds(700)}) {}
};

// It has come: it is not missed as one that never did.
TEST_F(ProcessHubWithShortDeadlines, ARankThatSaysNothingButHelloIsFrozen) {
  const auto first = join(0);
  const core::Socket second = connect();
  const std::string bytes = hello("secret", 1);
  ASSERT_GT(::send(second.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  first->await_gone();
  EXPECT_TRUE(says(first->failure().value(), "rank 1 does not answer")) << first->failure()->what();
}

// The fastest of some: a busy machine makes any of them late.
double seconds_to_end(const std::function<void()>& end, int times) {
  double least = 1e9;
  for (int i = 0; i < times; ++i) least = std::min(least, core::seconds_of(end));
  return least;
}

TEST(GroupConnectionEnd, DoesNotWaitWhereNothingIsLeftToSay) {
  const core::Socket listening = core::listen_at("127.0.0.1", 0);
  const double taken = seconds_to_end(
      [&] {
        const GroupConnection rank(core::connect_to("127.0.0.1", core::port_of(listening), seconds(5)),
                                   {.hello = {.token = "", .rank = 1, .size = 2}, .deadlines = kDeadlines});
      },
      5);
  EXPECT_LT(taken, 0.7);
}

TEST(GroupConnectionEnd, WaitsForASecondForWhoDoesNotListen) {
  const core::Socket listening = core::listen_at("127.0.0.1", 0);
  const double taken = seconds_to_end(
      [&] {
        GroupConnection rank(core::connect_to("127.0.0.1", core::port_of(listening), seconds(5)),
                             {.hello = {.token = "", .rank = 1, .size = 2}, .deadlines = kDeadlines});
        rank.send(GroupMessage::kNote, std::string(size_t{48} << 20, 'x'));
      },
      3);
  EXPECT_GT(taken, 0.9);
  EXPECT_LT(taken, 4.0);
}

// Nobody hears the thread any more, but its owner may do other things for long.
TEST(GroupConnectionEnd, AClosedConnectionCostsNoTimeOfTheProcessor) {
  const int before = ::dup(STDIN_FILENO), always_ready = ::open("/dev/null", O_RDONLY);
  ASSERT_EQ(::dup2(always_ready, STDIN_FILENO), STDIN_FILENO);
  core::Socket listening = core::listen_at("127.0.0.1", 0);
  GroupConnection rank(core::connect_to("127.0.0.1", core::port_of(listening), seconds(5)),
                       {.hello = {.token = "", .rank = 1, .size = 2}, .deadlines = kDeadlines});
  core::accept_from(listening).reset();
  rank.await_gone();
  timespec begin{}, end{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
  std::this_thread::sleep_for(milliseconds(600));
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  EXPECT_LT(static_cast<double>(end.tv_sec - begin.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec),
            0.05);
  ::dup2(before, STDIN_FILENO);
  ::close(before);
  ::close(always_ready);
}

// The hub ends without having read all that the rank has said, so that its end is a reset of the connection: the rank's
// next beat cannot be sent. It is held until both have come.
TEST(GroupConnectionEnd, IsBehindWhatTheHubSaysLast) {
  std::atomic<bool> held = false, released = false;
  const core::Socket listening = core::listen_at("127.0.0.1", 0);
  GroupConnection rank(core::connect_to("127.0.0.1", core::port_of(listening), seconds(5)),
                       {.hello = {.token = "", .rank = 1, .size = 2}, .deadlines = kDeadlines});
  std::optional<core::Socket> hub = core::accept_from(listening);
  ASSERT_TRUE(hub);
  std::this_thread::sleep_for(milliseconds(100));  // the first beat is behind it, and a change makes the next one due
  rank.watch_exchange([&]() -> std::optional<int64_t> {
    held = true;
    while (!released) std::this_thread::sleep_for(milliseconds(1));
    return std::nullopt;
  });
  rank.change_activity([](Activity& activity) { ++activity.begun; });
  while (!held) std::this_thread::sleep_for(milliseconds(1));
  const std::string last = core::encode_frame(static_cast<uint8_t>(GroupMessage::kFailed),
                                              encode(Error(ErrorCode::kPeerFailed, "the disk of rank 0 is full")));
  EXPECT_EQ(::send(hub->descriptor(), last.data(), last.size(), MSG_NOSIGNAL), static_cast<ssize_t>(last.size()));
  hub.reset();
  released = true;
  rank.await_gone();
  EXPECT_TRUE(says(rank.failure().value(), "the disk of rank 0 is full")) << rank.failure()->what();
}

// What is sent wakes the thread, and is no reason for a beat.
TEST(GroupConnectionBeats, AreNoMoreThanTheDeadlinesNeed) {
  const core::Socket listening = core::listen_at("127.0.0.1", 0);
  const auto begin = std::chrono::steady_clock::now();
  GroupConnection rank(core::connect_to("127.0.0.1", core::port_of(listening), seconds(5)),
                       {.hello = {.token = "", .rank = 1, .size = 2}, .deadlines = kDeadlines});
  const auto hub = core::accept_from(listening);
  ASSERT_TRUE(hub);
  constexpr int kNotes = 100;
  for (int i = 0; i < kNotes; ++i) {
    rank.send(GroupMessage::kNote, "x");
    std::this_thread::sleep_for(milliseconds(2));
  }
  core::FrameReader reader(1 << 20);
  int notes = 0, beats = 0;
  while (notes < kNotes) {
    char bytes[4096];
    const ssize_t count = ::recv(hub->descriptor(), bytes, sizeof bytes, 0);
    if (count < 0 && errno == EAGAIN) {
      std::this_thread::sleep_for(milliseconds(1));
      continue;
    }
    ASSERT_GT(count, 0);
    reader.feed({bytes, static_cast<size_t>(count)});
    while (const auto frame = reader.next()) {
      notes += frame->kind == static_cast<uint8_t>(GroupMessage::kNote) ? 1 : 0;
      beats += frame->kind == static_cast<uint8_t>(GroupMessage::kBeat) ? 1 : 0;
    }
  }
  EXPECT_GE(beats, 1);
  EXPECT_LE(beats, (std::chrono::steady_clock::now() - begin) / heartbeat_interval(kDeadlines) + 2);
}

TEST_F(ProcessHubTest, KeepsNoTextThatAllHave) {
  const auto first = join(0), second = join(1);
  // A call of the same number begins anew, with the texts of no earlier one.
  for (int round = 1; round <= 100; ++round) {
    const auto body = [round](const char* rank) {
      return encode(SharedTexts{.call = 1, .what = "it", .from_all = true, .texts = {rank + std::to_string(round)}});
    };
    first->send(GroupMessage::kText, body("first "));
    second->send(GroupMessage::kText, body("second "));
    const std::vector<std::string> both = {"first " + std::to_string(round), "second " + std::to_string(round)};
    EXPECT_EQ(first->await_texts(1).texts, both);
    EXPECT_EQ(second->await_texts(1).texts, both);
  }
}

TEST_F(ProcessHubTest, AClosedConnectionIsADeadRank) {
  const auto first = join(0);
  auto second = join(1);
  second->await_welcome();
  second->change_activity([](Activity& activity) { activity = {.operation = "save", .step = 3}; });
  std::this_thread::sleep_for(milliseconds(100));
  second.reset();
  first->await_gone();
  EXPECT_TRUE(says(first->failure().value(), "rank 1 has died: step 3, save")) << first->failure()->what();
}

// Without a hub that answers, each rank names rank 0 by itself.
TEST(ProcessHubThatIsSilent, IsAFrozenFirstRank) {
  const core::Socket listening = core::listen_at("127.0.0.1", 0);
  GroupConnection rank(core::connect_to("127.0.0.1", core::port_of(listening), seconds(5)),
                       {.hello = {.token = "", .rank = 1, .size = 2},
                        .deadlines = {.start = milliseconds(300), .step = milliseconds(300)}});
  rank.await_gone();
  EXPECT_TRUE(says(rank.failure().value(), "rank 0 does not answer")) << rank.failure()->what();
}

TEST_F(ProcessHubTest, TheLastResortIsCalledOnceWhereNobodyLeaves) {
  std::atomic<int> calls = 0;
  const auto first = join(0, [&](const Error& error) {
    EXPECT_TRUE(says(error, "rank 1 has died"));
    ++calls;
  });
  join(1)->await_welcome();
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(calls, 1);
}

// Only this machine reaches it.
TEST(ProcessGroupPort, ListensOnLoopbackAndKnowsATokenWhereMpiSharesIt) {
  std::string shared;
  ProcessGroup group({.rank = 0, .size = 1}, {.share = [&](const std::string& of_first) { return shared = of_first; }});
  const auto port = static_cast<unsigned>(std::stoi(shared));
  char wanted[16];
  std::snprintf(wanted, sizeof(wanted), ":%04X ", port);
  std::vector<std::string> listening;
  for (const char* file : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream sockets(file);
    for (std::string line; std::getline(sockets, line);) {
      if (line.find(wanted) < line.find(':', line.find(':') + 6) + 6 && line.find(" 0A ") != std::string::npos) {
        listening.push_back(line);
      }
    }
  }
  ASSERT_EQ(listening.size(), 1U);
  EXPECT_NE(listening[0].find(std::string("0100007F") + wanted), std::string::npos) << listening[0];
  EXPECT_GE(shared.size() - shared.rfind(' ') - 1, 32U);
  EXPECT_GE(port, 1024U) << "one that the system chooses";
  group.leave();
}

TEST(ProcessGroupPort, IsAtTheAddressThatWasAskedFor) {
  std::string shared;
  ProcessGroup group({.rank = 0, .size = 1}, {.listen_address = "127.0.0.5",
                                              .share = [&](const std::string& of_first) { return shared = of_first; }});
  EXPECT_NE(shared.find(" 127.0.0.5 "), std::string::npos) << shared;
  group.leave();
}

// Nothing ends a rank that comes late but what the hub tells it.
TEST_F(ProcessHubTest, ARankThatComesBehindAFailureHearsOfIt) {
  const auto first = join(0);
  const core::Socket stranger = connect();
  const std::string bytes = hello("secret", 2);
  ASSERT_GT(::send(stranger.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  first->await_gone();
  const std::optional<Error> failure = first->failure();
  ASSERT_TRUE(failure);
  const auto second = join(1);
  const auto until = std::chrono::steady_clock::now() + seconds(5);
  while (!second->failure() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
  const std::optional<Error> told = second->failure();
  ASSERT_TRUE(told);
  EXPECT_EQ(told->code(), ErrorCode::kInvalidArgument);
  EXPECT_STREQ(told->what(), failure->what());
}

// What comes behind it is not read.
TEST(GroupConnectionEnd, IsAMessageThatNoHubSends) {
  const core::Socket listening = core::listen_at("127.0.0.1", 0);
  GroupConnection rank(core::connect_to("127.0.0.1", core::port_of(listening), seconds(5)),
                       {.hello = {.token = "", .rank = 1, .size = 2}, .deadlines = kDeadlines});
  const std::optional<core::Socket> hub = core::accept_from(listening);
  ASSERT_TRUE(hub);
  const auto say = [&hub](GroupMessage message, const std::string& body) {
    const std::string bytes = core::encode_frame(static_cast<uint8_t>(message), body);
    EXPECT_EQ(::send(hub->descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  };
  say(GroupMessage::kLeave, "");
  rank.await_gone();
  const std::optional<Error> failure = rank.failure();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code(), ErrorCode::kCorruptData);
  const std::string kind = std::to_string(static_cast<int>(GroupMessage::kLeave));
  EXPECT_EQ(failure->what(), "a message of kind " + kind + " is none that rank 0 sends: rank 0's hub");
  say(GroupMessage::kNote, "too late");
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(rank.note());
}

}  // namespace
}  // namespace trainyard::parallel::process_hub_test
