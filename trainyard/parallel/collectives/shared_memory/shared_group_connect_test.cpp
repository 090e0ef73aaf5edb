// How the memory of a group is handed over, from the place of one process: the test takes the place of the other one.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/memory/shared_memory.h"
#include "trainyard/core/sockets/unix_socket.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/collectives/shared_memory/shared_group.h"

namespace trainyard::parallel::shared_group_connect_test {
namespace {

using core::Error, core::ErrorCode, ::testing::HasSubstr;

constexpr size_t kBytes = size_t{64} << 20;

// Ends a wait when it is asked for the third time.
class ImpatientWatch final : public ExchangeWatch {
 public:
  void throw_if_failed() override {}
  void check() override {
    if (++checks_ == 3) throw Error(ErrorCode::kPeerFailed, "the other process has died");
  }
  void fail(const Error&) override {}
  void begin_meeting(const char*) override {}
  void end_meeting() override {}
  void begin_turns() override { ++turns_; }
  void end_turns() override { --turns_; }

  int checks() const { return checks_; }
  int turns() const { return turns_; }

 private:
  int checks_ = 0, turns_ = 0;
};

// Two processes that exchange texts and answers, of which the test is one.
class OtherProcess final : public core::Communicator {
 public:
  explicit OtherProcess(int rank) : rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return 2; }
  void all_reduce(at::Tensor, core::ReduceOp) override { ADD_FAILURE() << "nothing is reduced"; }
  void barrier() override { ADD_FAILURE() << "there is no barrier"; }
  void abort(const Error&) override {}
  // Process 0 gives its name, process 1 gets that of the test.
  void broadcast(at::Tensor tensor, int root) override {
    EXPECT_EQ(root, 0);
    auto* const bytes = static_cast<char*>(tensor.mutable_data_ptr());
    if (rank_ == 0) {
      name.assign(bytes);
    } else {
      ASSERT_LT(name.size(), static_cast<size_t>(tensor.numel()));
      name.copy(bytes, name.size());
    }
  }
  // Runs what the test has to do before this answer, which is yes where that returns true.
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override {
    own_answers.push_back(tensor.item<int64_t>());
    const bool yes = answers.size() < own_answers.size() || answers[own_answers.size() - 1]();
    const at::Tensor other = at::full({1}, yes ? 1 : 0, at::kLong);
    return rank_ == 0 ? std::vector<at::Tensor>{tensor, other} : std::vector<at::Tensor>{other, tensor};
  }

  std::string name;
  std::vector<std::function<bool()>> answers;  // beyond them: yes
  std::vector<int64_t> own_answers;

 private:
  const int rank_;
};

RankLayout layout_of_process(int process) {
  return {.process = process, .first_ranks = {0, 1, 2}};
}

struct Connected {
  std::shared_ptr<SharedGroup> group;
  std::string said;  // by the log
};

Connected connect(ImpatientWatch& watch, OtherProcess& processes) {
  ::testing::internal::CaptureStderr();
  Connected connected;
  connected.group = SharedGroup::connect(watch, processes, layout_of_process(processes.rank()));
  connected.said = ::testing::internal::GetCapturedStderr();
  return connected;
}

TEST(SharedGroupConnect, GivesTheMemoryToTheOtherProcess) {
  ImpatientWatch watch;
  OtherProcess processes(0);
  std::optional<core::Socket> connection;
  std::optional<core::SharedMemory> memory;
  processes.answers = {[&] { return (connection = core::connect_to_name(processes.name)).has_value(); },
                       [&] {
                         const auto descriptor = core::receive_descriptor(*connection);
                         if (descriptor) memory.emplace(core::SharedMemory::map(descriptor->descriptor()));
                         return memory.has_value();
                       }};
  const Connected own = connect(watch, processes);
  ASSERT_NE(own.group, nullptr) << own.said;
  ASSERT_TRUE(memory);
  EXPECT_EQ(processes.own_answers, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(own.group->layout().process, 0);
  EXPECT_EQ(watch.turns(), 0) << "each begin has its end";
  own.group->at(0)[5000] = 'x';
  EXPECT_EQ(memory->data()[5000], 'x');
  EXPECT_EQ(own.said.find("exchange messages"), std::string::npos) << own.said;
}

TEST(SharedGroupConnect, TakesTheMemoryOfTheFirstProcess) {
  ImpatientWatch watch;
  OtherProcess processes(1);
  processes.name = "trainyard-test-takes-" + std::to_string(::getpid());
  const core::Socket listening = core::listen_at_name(processes.name);
  core::SharedMemory memory = core::SharedMemory::create(kBytes);
  std::optional<core::Socket> connection;
  processes.answers = {[&] {
    connection = core::accept_from(listening);
    return connection && core::send_descriptor(*connection, memory.descriptor());
  }};
  const Connected own = connect(watch, processes);
  ASSERT_NE(own.group, nullptr) << own.said;
  EXPECT_EQ(processes.own_answers, (std::vector<int64_t>{1, 1}));
  memory.data()[7000] = 'y';
  EXPECT_EQ(own.group->at(0)[7000], 'y');
}

TEST(SharedGroupConnect, EndsWhenTheOtherProcessDiesBeforeItConnects) {
  ImpatientWatch watch;
  OtherProcess processes(0);
  EXPECT_EQ(
      core::message_of([&] { SharedGroup::connect(watch, processes, layout_of_process(0)); }, ErrorCode::kPeerFailed),
      "the other process has died");
  EXPECT_EQ(watch.checks(), 3);
  EXPECT_EQ(watch.turns(), 0);
}

TEST(SharedGroupConnect, ExchangesMessagesWhereTheFirstProcessIsNotReached) {
  ImpatientWatch watch;
  OtherProcess processes(1);
  processes.name = "trainyard-test-none-" + std::to_string(::getpid());  // as on another machine
  const Connected own = connect(watch, processes);
  EXPECT_EQ(own.group, nullptr);
  EXPECT_EQ(processes.own_answers, (std::vector<int64_t>{0}));
  EXPECT_THAT(own.said, HasSubstr("the processes exchange messages, not shared memory: a process is on another "
                                  "machine, or cannot map it"));
}

// /dev/null is no memory.
TEST(SharedGroupConnect, SaysWhyTheMemoryCannotBeMapped) {
  ImpatientWatch watch;
  OtherProcess processes(1);
  processes.name = "trainyard-test-maps-" + std::to_string(::getpid());
  const core::Socket listening = core::listen_at_name(processes.name);
  const core::Socket no_memory(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::optional<core::Socket> connection;
  processes.answers = {[&] {
    connection = core::accept_from(listening);
    return connection && core::send_descriptor(*connection, no_memory.descriptor());
  }};
  const Connected own = connect(watch, processes);
  EXPECT_EQ(own.group, nullptr);
  EXPECT_EQ(processes.own_answers, (std::vector<int64_t>{1, 0}));
  EXPECT_THAT(own.said, HasSubstr("the processes exchange messages, not shared memory: the size of shared memory can "
                                  "change: expected a memfd with seals against it, got another file"));
}

TEST(SharedGroupConnect, ExchangesMessagesWhereNoMoreFilesMayBeOpen) {
  ImpatientWatch watch;
  OtherProcess processes(0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::optional<core::Socket> connection;
  processes.answers = {[&] {
                         connection = core::connect_to_name(processes.name);
                         const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
                         ::close(next);
                         const rlimit lower{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = before.rlim_max};
                         return connection.has_value() && ::setrlimit(RLIMIT_NOFILE, &lower) == 0;
                       },
                       [&] {
                         EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
                         return true;
                       }};
  const Connected own = connect(watch, processes);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(own.group, nullptr);
  EXPECT_EQ(processes.own_answers, (std::vector<int64_t>{1, 0}));
  EXPECT_THAT(own.said, HasSubstr("ulimit -n"));
}

TEST(SharedGroupConnect, NeedsTheYesOfAllProcesses) {
  for (const size_t refusal : {0, 1}) {
    ImpatientWatch watch;
    OtherProcess processes(0);
    std::optional<core::Socket> connection;
    processes.answers = {
        [&] { return (connection = core::connect_to_name(processes.name)).has_value() && refusal != 0; },
        [&] { return refusal != 1; }};
    const Connected own = connect(watch, processes);
    EXPECT_EQ(own.group, nullptr) << refusal;
    EXPECT_EQ(processes.own_answers.size(), refusal + 1);
    EXPECT_THAT(own.said, HasSubstr("a process is on another machine, or cannot map it")) << refusal;
  }
}

}  // namespace
}  // namespace trainyard::parallel::shared_group_connect_test
