#include "trainyard/parallel/collectives/chosen_communicator.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/testing/all_reduce_cases.h"

namespace trainyard::parallel::chosen_communicator_test {
namespace {

using Choices = std::vector<std::shared_ptr<nn::KernelChoices>>;
using ::testing::HasSubstr;

constexpr const char* kWhat = "all-reduce of gradients, 4 ranks in 4 processes on 1 machine";

class ChosenCommunicators : public testing::Test {
 protected:
  // Four processes of a replica each, which have measured this spec.
  Communicators connect_auto(const std::string& spec, std::optional<at::ScalarType> wire = {}) {
    choices_.clear();
    for (size_t p = 0; p < 4; ++p) choices_.push_back(std::make_shared<nn::KernelChoices>());
    return connect_by(4, [&](size_t p) {
      return make_automatic_communicators(
          engines_[p], 1, kLongDeadline,
          {.in_rank_order = "shared_memory", .spec = spec, .wire = wire, .choices = choices_[p]});
    });
  }
  // Returns the sums by an all_reduce_spec; empty: by the default.
  std::vector<at::Tensor> sums_by(const std::string& spec, std::optional<at::ScalarType> wire = {}) {
    return all_reduced(
        connect(engines_, {1, 1, 1, 1}, kLongDeadline, AllReduceOptions{.spec = spec, .wire = wire}.choice()), inputs_);
  }
  void expect_sums(const Communicators& group, const std::vector<at::Tensor>& expected) {
    const std::vector<at::Tensor> sums = all_reduced(group, inputs_);
    for (size_t r = 0; r < sums.size(); ++r) EXPECT_TRUE(have_equal_bits(sums[r], expected[r])) << "rank " << r;
  }

  const std::vector<std::shared_ptr<ProcessEngine>> engines_ = make_engines(4);
  const std::vector<at::Tensor> inputs_ = normal_values_of_all(4, 1003);
  Choices choices_;
};

TEST_F(ChosenCommunicators, ReduceAsTheMeasuredSpecDoes) {
  ASSERT_FALSE(have_equal_bits(sums_by("ring")[0], sums_by("")[0]));
  for (const char* spec : {"ring", "rechd", "ring:1K:rechd", "shuffle#4:1M:xring"}) {
    expect_sums(connect_auto(spec), sums_by(spec));
    for (const auto& choices : choices_) EXPECT_EQ(choices->find(kWhat), spec) << "a part of the run";
  }
  expect_sums(connect_auto("default"), sums_by(""));
  expect_sums(connect_auto("default", at::kBFloat16), sums_by("", at::kBFloat16));
  expect_sums(connect_auto("ring", at::kHalf), sums_by("ring", at::kHalf));
}

TEST_F(ChosenCommunicators, AResumedRunKeepsItsChoice) {
  core::MemoryState checkpoint;
  {
    const Communicators first = connect_auto("rechd");
    expect_sums(first, sums_by("rechd"));
    choices_[0]->save(checkpoint);
  }
  for (const char* measured_later : {"ring", "default"}) {
    const Communicators resumed = connect_auto(measured_later);
    EXPECT_TRUE(resumed[0]->progresses_in_background()) << "the same buckets by any choice";
    for (const auto& choices : choices_) choices->load(checkpoint);
    expect_sums(resumed, sums_by("rechd"));
    EXPECT_EQ(choices_[3]->find(kWhat), "rechd") << "and saves it again";
  }
  // A checkpoint of a run without such a choice.
  const Communicators resumed = connect_auto("ring");
  expect_sums(resumed, sums_by("ring"));
  for (const auto& choices : choices_) choices->load(core::MemoryState());
  expect_sums(resumed, sums_by("ring"));
}

TEST_F(ChosenCommunicators, SayThatTheCheckpointChoosesOtherwise) {
  const auto said_with = [&](const std::string& of_run) {
    const Communicators group = connect_auto("ring");
    for (const auto& choices : choices_) choices->add(kWhat, of_run);
    ::testing::internal::CaptureStderr();
    all_reduced(group, inputs_);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said_with("rechd"), HasSubstr("gradients are all-reduced by rechd, which the checkpoint says, not by "
                                            "ring, which was measured here"));
  EXPECT_THAT(said_with("ring"), ::testing::Not(HasSubstr("which the checkpoint says")));
}

TEST_F(ChosenCommunicators, AChoiceThatCannotBeUsedIsAnErrorOfAllRanks) {
  for (const char* spec : {"nonsense", "shuffle#5", "nccl", "ring:4K"}) {
    const Communicators group = connect_auto("ring");
    for (const auto& choices : choices_) choices->add(kWhat, spec);
    for (const auto& error : on_ranks(group, [&](core::Communicator& self) {
           self.all_reduce(inputs_[static_cast<size_t>(self.rank())].clone(), core::ReduceOp::kSum);
         })) {
      ASSERT_TRUE(error) << spec;
      EXPECT_EQ(error->code(), core::ErrorCode::kCorruptData);
      EXPECT_THAT(error->what(), HasSubstr("the run's choice of an all-reduce cannot be used"));
    }
  }
}

TEST_F(ChosenCommunicators, OtherCollectivesAndStartedOnesWork) {
  for (const char* spec : {"ring", "default"}) {
    const Communicators group = connect_auto(spec);
    const std::vector<at::Tensor> sums = sums_by(spec == std::string("ring") ? spec : "");
    expect_none(on_ranks(group, [&](core::Communicator& self) {
      const auto rank = static_cast<size_t>(self.rank());
      const at::Tensor exchanged = self.new_exchanged(1003, at::kFloat);
      ASSERT_TRUE(exchanged.defined());
      exchanged.copy_(inputs_[rank]);
      const auto started = self.start_all_reduce(exchanged, core::ReduceOp::kSum);
      at::Tensor values = inputs_[rank].clone();
      self.broadcast(values, 2);
      EXPECT_TRUE(have_equal_bits(values, inputs_[2]));
      started->wait();
      EXPECT_TRUE(have_equal_bits(exchanged, sums[rank]));
      EXPECT_TRUE(have_equal_bits(self.all_gather(inputs_[rank])[3], inputs_[3]));
      self.barrier();
      EXPECT_EQ(self.size(), 4);
    }));
  }
}

TEST_F(ChosenCommunicators, AnAbortEndsBothExchanges) {
  for (const char* spec : {"ring", "default"}) {
    const std::vector<std::shared_ptr<ProcessEngine>> engines = make_engines(2);
    const auto choices = std::make_shared<nn::KernelChoices>();
    const Communicators group = connect_by(2, [&](size_t p) {
      return make_automatic_communicators(engines[p], 1, kLongDeadline,
                                          {.in_rank_order = "shared_memory", .spec = spec, .choices = choices});
    });
    group[1]->set_deadline(std::chrono::seconds(5));
    group[1]->abort({core::ErrorCode::kIo, "the disk is gone"});
    EXPECT_EQ(core::message_of([&] { group[1]->barrier(); }, core::ErrorCode::kPeerFailed), "the disk is gone");
    EXPECT_EQ(core::message_of([&] { group[1]->all_reduce(inputs_[1].clone(), core::ReduceOp::kSum); },
                               core::ErrorCode::kPeerFailed),
              "the disk is gone");
  }
}

// Barriers are of one exchange, all-reduces of the other.
TEST_F(ChosenCommunicators, CountTheWaitsOfBothExchanges) {
  constexpr auto kDelay = std::chrono::milliseconds(100);
  const Communicators group = connect_auto("ring");
  double in_barrier = 0, in_all_reduce = 0;  // of rank 0, which waits for the others
  expect_none(on_ranks(group, [&](core::Communicator& self) {
    const bool is_late = self.rank() != 0;
    self.barrier();
    const double begin = self.waiting_seconds();
    if (is_late) std::this_thread::sleep_for(kDelay);
    self.barrier();
    const double between = self.waiting_seconds();
    if (is_late) std::this_thread::sleep_for(kDelay);
    self.all_reduce(inputs_[static_cast<size_t>(self.rank())].clone(), core::ReduceOp::kSum);
    if (is_late) return;
    in_barrier = between - begin;
    in_all_reduce = self.waiting_seconds() - between;
  }));
  EXPECT_GT(in_barrier, 0.03);
  EXPECT_GT(in_all_reduce, 0.03);
}

}  // namespace
}  // namespace trainyard::parallel::chosen_communicator_test
