#include "trainyard/parallel/collectives/measured_all_reduce.h"

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/collectives/all_reduce_options.h"
#include "trainyard/parallel/collectives/all_reduce_timing.h"
#include "trainyard/parallel/testing/all_reduce_cases.h"

namespace trainyard::parallel::measured_all_reduce_test {
namespace {

using core::ReduceOp;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Engines = std::vector<std::shared_ptr<ProcessEngine>>;

// Processes with some replicas each, and the machine of each process.
struct Layout {
  std::vector<int> replicas;
  std::vector<std::string> machines;
};

Communicators connect_measured(const Engines& engines, const Layout& layout, const std::string& spec) {
  return connect_by(engines.size(), [&](size_t p) {
    return make_measured_communicators(engines[p], layout.replicas[p], kLongDeadline, spec, layout.machines[p]);
  });
}

// 1x4, 2x2, 4x1, and ranks whose machines take turns: all have the same four ranks.
const std::vector<Layout> kFourRanks = {{{4}, {"a"}},
                                        {{2, 2}, {"a", "a"}},
                                        {{1, 1, 1, 1}, {"a", "a", "a", "a"}},
                                        {{1, 1, 1, 1}, {"a", "b", "a", "b"}},
                                        {{1, 2, 1}, {"a", "b", "b"}}};

// What may run without an all_reduce_spec must not change a bit. The chain over four processes is compared with
// TensorFlow's order and with threads in chain_test.cpp and process_communicator_test.cpp.
TEST(MeasuredAllReduce, EachAlgorithmHasTheBitsOfTheChain) {
  for (const auto& [type, op] : {std::pair{at::kFloat, ReduceOp::kSum},
                                 {at::kFloat, ReduceOp::kMean},
                                 {at::kBFloat16, ReduceOp::kMean},
                                 {at::kHalf, ReduceOp::kSum},
                                 {at::kDouble, ReduceOp::kMean},
                                 {at::kLong, ReduceOp::kMax}}) {
    // More than a chunk of 1 MiB in all parts of "shuffle#4".
    for (const int64_t elements : {int64_t{1}, int64_t{1003}, int64_t{1'500'001}}) {
      if (elements > 2000 && type != at::kFloat) continue;
      const std::vector<at::Tensor> inputs = normal_values_of_all(4, elements, type);
      const Engines chain = make_engines(4);
      const at::Tensor expected = all_reduced(connect(chain, {1, 1, 1, 1}), inputs, op)[0];
      for (const Layout& layout : kFourRanks) {
        const Engines engines = make_engines(static_cast<int>(layout.replicas.size()));
        for (const char* spec : {"chain", "chain/64K", "chain/1M", "shuffle", "shuffle#2", "shuffle#4",
                                 "shuffle#3:2K:chain/64K:1M:shuffle#4", "shared_memory"}) {
          for (const at::Tensor& result : all_reduced(connect_measured(engines, layout, spec), inputs, op)) {
            EXPECT_TRUE(have_equal_bits(result, expected))
                << spec << " over " << engines.size() << " processes, " << elements << " of " << c10::toString(type);
          }
        }
      }
    }
  }
}

// The test above would not see a difference where there is none to see.
TEST(MeasuredAllReduce, OtherOrdersHaveOtherBits) {
  const std::vector<at::Tensor> inputs = normal_values_of_all(4, 1003);
  const at::Tensor chain = all_reduced(connect(make_engines(4), {1, 1, 1, 1}), inputs)[0];
  for (const char* spec : {"ring", "rechd"}) {
    const Communicators others =
        connect(make_engines(4), {1, 1, 1, 1}, kLongDeadline, AllReduceOptions{.spec = spec}.choice());
    EXPECT_FALSE(have_equal_bits(all_reduced(others, inputs)[0], chain)) << spec;
  }
}

TEST(MeasuredAllReduce, OtherAlgorithmsAreRefusedInTheOrderOfRanks) {
  const Engines engines = make_engines(1);
  for (const char* spec : {"ring", "xring#2", "rechd:1K:chain", "shared_memory:1K:chain", "chain#2", "chain/2K", "",
                           "chain:1K", "default", "auto"}) {
    EXPECT_EQ(core::code_of([&] { make_measured_communicators(engines[0], 1, kLongDeadline, spec); }),
              core::ErrorCode::kInvalidArgument)
        << spec;
  }
}

AllReduceTime at(int64_t bytes, const std::string& algorithm, double microseconds) {
  return {bytes, algorithm, 1e-6 * microseconds};
}

// Limits are the geometric means of the sizes: of 4 KiB and 64 KiB 16 KiB, of 1 MiB and 16 MiB 4 MiB.
TEST(MeasuredAllReduce, ChoosesTheFastestBySize) {
  MeasuredAllReduces measured{
      .in_rank_order = {"chain", "chain/1M", "shuffle#2"},
      .times = {at(4096, "chain", 20), at(4096, "chain/1M", 20), at(4096, "shuffle#2", 10), at(65536, "chain", 30),
                at(65536, "chain/1M", 29), at(65536, "shuffle#2", 28), at(1 << 20, "chain", 90),
                at(1 << 20, "chain/1M", 95), at(16 << 20, "chain", 900), at(16 << 20, "chain/1M", 700)}};
  // At 64 KiB none is clearly faster than the preferred one.
  EXPECT_EQ(choose_by_times(measured, AllReduceOrder::kOfRanks)->spec, "shuffle#2:16K:chain:4M:chain/1M");
  measured.in_rank_order = {"chain", "shuffle#2"};
  EXPECT_EQ(choose_by_times(measured, AllReduceOrder::kOfRanks)->spec, "shuffle#2:16K:chain");
  EXPECT_FALSE(choose_by_times({.in_rank_order = {"chain"}}, AllReduceOrder::kOfRanks));
  EXPECT_FALSE(
      choose_by_times({.in_rank_order = {"chain"}, .times = {at(4096, "chain", 20)}}, AllReduceOrder::kOfRanks));
}

TEST(MeasuredAllReduce, MessagesReplaceTheSharedMemoryOnlyWhereTheyAreFasterOverall) {
  MeasuredAllReduces measured{
      .in_rank_order = {"shared_memory", "chain", "shuffle#2"},
      .times = {at(4096, "shared_memory", 30), at(4096, "chain", 20), at(4096, "shuffle#2", 15),
                at(65536, "shared_memory", 20), at(65536, "chain", 40), at(65536, "shuffle#2", 50)}};
  // 30 / 15 + 1 against 1 + 2.
  EXPECT_EQ(choose_by_times(measured, AllReduceOrder::kOfRanks)->spec, "shared_memory");
  measured.times[3].seconds = 60e-6;  // 2 + 1.5 against 1 + 1
  EXPECT_EQ(choose_by_times(measured, AllReduceOrder::kOfRanks)->spec, "shuffle#2:16K:chain");
}

TEST(MeasuredAllReduce, AnAllReduceSpecIsChosenWhereItIsFasterThanTheDefault) {
  MeasuredAllReduces measured{.in_rank_order = {"chain", "shuffle#2"},
                              .other = {"ring", "xring", "shuffle#2"},
                              .times = {at(4096, "chain", 20), at(4096, "shuffle#2", 10), at(4096, "ring", 30),
                                        at(4096, "xring", 29), at(1 << 20, "chain", 100), at(1 << 20, "shuffle#2", 90),
                                        at(1 << 20, "ring", 80), at(1 << 20, "xring", 70)}};
  EXPECT_EQ(choose_by_times(measured, AllReduceOrder::kAny)->spec, "shuffle#2:64K:xring");
  measured.times[0].seconds = 9e-6;
  measured.times[4].seconds = 70e-6;
  EXPECT_EQ(choose_by_times(measured, AllReduceOrder::kAny)->spec, "default");
}

TEST(MeasuredAllReduce, SizesAtWhichAChoiceIsSlowAreFound) {
  const std::vector<AllReduceTime> times = {at(4096, "shared_memory", 2), at(4096, "chain", 14),
                                            at(65536, "shared_memory", 20), at(65536, "chain", 21),
                                            at(1 << 20, "shared_memory", 25)};
  const auto slow = slow_sizes("chain", AllReduceOrder::kOfRanks, times);
  ASSERT_EQ(slow.size(), 1U) << "at 64 KiB by 1.05 only, and at 1 MiB it has no time";
  EXPECT_EQ(slow[0].bytes, 4096);
  EXPECT_EQ(slow[0].chosen, "chain");
  EXPECT_EQ(slow[0].fastest, "shared_memory");
  EXPECT_DOUBLE_EQ(slow[0].chosen_seconds / slow[0].fastest_seconds, 7);
  EXPECT_TRUE(slow_sizes("shared_memory", AllReduceOrder::kOfRanks, times).empty());
  const std::vector<AllReduceTime> any = {at(4096, "chain", 20), at(4096, "shuffle#2", 10), at(4096, "ring", 4)};
  ASSERT_EQ(slow_sizes("default", AllReduceOrder::kAny, any).size(), 1U);
  EXPECT_EQ(slow_sizes("default", AllReduceOrder::kAny, any)[0].chosen, "shuffle#2");
  EXPECT_EQ(slow_sizes("ring:1K:shuffle#2", AllReduceOrder::kAny, any)[0].fastest, "ring");
}

TEST(MeasuredAllReduce, RanksWhoseTimesDifferAgreeOnTheSlowest) {
  const Communicators group = connect(make_engines(3), {1, 1, 1});
  std::vector<std::vector<double>> results(3);
  expect_none(on_ranks(group, [&](core::Communicator& self) {
    const auto rank = static_cast<size_t>(self.rank());
    const std::vector<std::vector<double>> own = {{1, 5, 3}, {2, 4, 3}, {3, 1, 0.5}};
    results[rank] = slowest_of_ranks(self, own[rank]);
  }));
  for (const auto& result : results) EXPECT_THAT(result, ElementsAre(3, 5, 3));
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1, 2, 3}), 2.5);
}

// Each runs as often as it is asked to, the last turn with what is left.
TEST(MeasuredAllReduce, OperationsTakeTurns) {
  std::vector<std::string> runs;
  const auto noting = [&runs](const std::string& name) {
    return TimedOperation{name, [&runs, name](int64_t times) {
                            runs.push_back(name + std::to_string(times));
                            return std::vector<double>(static_cast<size_t>(times), static_cast<double>(times));
                          }};
  };
  const std::vector<std::vector<double>> seconds = time_in_turns({noting("a"), noting("b")}, 5, 2);
  EXPECT_THAT(runs, ElementsAre("a2", "b2", "a2", "b2", "a1", "b1"));
  EXPECT_THAT(seconds, ElementsAre(ElementsAre(2, 2, 2, 2, 1), ElementsAre(2, 2, 2, 2, 1)));
  runs.clear();
  time_in_turns({noting("c")}, 4, 2);
  EXPECT_THAT(runs, ElementsAre("c2", "c2"));
  int barriers = 0, works = 0;
  EXPECT_EQ(time_each(
                3, [&] { ++barriers; }, [&] { ++works; })
                .size(),
            3U);
  EXPECT_EQ(barriers, 3);
  EXPECT_EQ(works, 3);
}

AllReduceMeasuring quick() {
  return {.transport = "memory", .seconds = 20, .sizes = {4096, 65536}};
}

TEST(MeasuredAllReduce, EachAlgorithmIsMeasured) {
  for (const AllReduceOrder order : {AllReduceOrder::kOfRanks, AllReduceOrder::kAny}) {
    const Engines engines = make_engines(2);
    std::vector<MeasuredAllReduces> measured(2);
    on_processes(2, [&](size_t p) {
      AllReduceMeasuring measuring = quick();
      measuring.order = order;
      measuring.seconds = 20;
      measuring.sizes = {4096, 65536};
      measured[p] = measure_all_reduces(engines[p], /*replicas=*/p == 0 ? 1 : 2, measuring);
    });
    const std::vector<std::string> ordered = {"shared_memory", "chain",   "chain/64K",
                                              "chain/1M",      "shuffle", "shuffle#3"};
    EXPECT_EQ(measured[0].in_rank_order, ordered);
    size_t others = 0;
    if (order == AllReduceOrder::kAny) {
      EXPECT_THAT(measured[0].other,
                  ElementsAre("ring", "xring", "collective", "collective#2", "rechd", "pscpu", "psgpu", "shuffle#3"));
      others = 7;
    } else {
      EXPECT_TRUE(measured[0].other.empty());
    }
    ASSERT_EQ(measured[0].times.size(), 2 * (ordered.size() + others)) << "shuffle#3 once";
    std::map<int64_t, std::set<double>> seconds_by_size;
    for (const AllReduceTime& time : measured[0].times) seconds_by_size[time.bytes].insert(time.seconds);
    for (const auto& [bytes, seconds] : seconds_by_size) {
      EXPECT_GT(seconds.size(), 1U) << "each has a time of its own: " << bytes;
    }
    for (size_t i = 0; i < measured[0].times.size(); ++i) {
      const AllReduceTime &one = measured[0].times[i], &other = measured[1].times[i];
      EXPECT_GT(one.seconds, 1e-7) << one.algorithm;
      EXPECT_EQ(one.seconds, other.seconds) << "both processes have the slowest rank's";
      EXPECT_EQ(one.algorithm, other.algorithm);
    }
  }
}

// Others round their partial sums at other ranks.
TEST(MeasuredAllReduce, WithAnotherTypeOnTheWireOnlyTheChainHasTheOrderOfRanks) {
  const Engines engines = make_engines(2);
  std::vector<MeasuredAllReduces> measured(2);
  on_processes(2, [&](size_t p) {
    AllReduceMeasuring measuring = quick();
    measuring.order = AllReduceOrder::kAny;
    measuring.wire = at::kBFloat16;
    measured[p] = measure_all_reduces(engines[p], 1, measuring);
  });
  for (const MeasuredAllReduces& each : measured) {
    EXPECT_THAT(each.in_rank_order, ElementsAre("chain"));
    EXPECT_FALSE(each.other.empty());
    EXPECT_EQ(each.times.size(), 2 * (1 + each.other.size())) << "no shared memory, and no other chain";
  }
}

TEST(MeasuredAllReduce, AMeasurementEndsWhenItsTimeIsOver) {
  const Engines engines = make_engines(2);
  AllReduceChoices first(""), second("");
  std::vector<AgreedAllReduce> agreed(2);
  on_processes(2, [&](size_t p) {
    AllReduceMeasuring measuring = quick();
    measuring.seconds = 0;
    agreed[p] = agree_on_all_reduce(engines[p], 1, measuring, p == 0 ? first : second);
  });
  for (const AgreedAllReduce& each : agreed) {
    EXPECT_EQ(each.spec, "shared_memory") << "the rule";
    EXPECT_FALSE(each.measured_now);
    EXPECT_FALSE(each.was_kept);
  }
  EXPECT_TRUE(first.all().empty()) << "nothing was found that could be kept";
}

class AgreedAllReduces : public testing::Test {
 protected:
  // Returns what both processes agree on.
  std::vector<AgreedAllReduce> agree(const AllReduceMeasuring& measuring, const std::vector<std::string>& machines,
                                     int replicas_of_second = 1) {
    const Engines engines = make_engines(2);
    std::vector<AgreedAllReduce> agreed(2);
    on_processes(2, [&](size_t p) {
      AllReduceMeasuring own = measuring;
      own.machine = machines[p];
      agreed[p] = agree_on_all_reduce(engines[p], p == 0 ? 1 : replicas_of_second, own, kept_[p]);
    });
    EXPECT_EQ(agreed[0].spec, agreed[1].spec);
    EXPECT_EQ(agreed[0].description, agreed[1].description);
    EXPECT_EQ(agreed[0].measured_now, agreed[1].measured_now);
    return agreed;
  }
  std::array<AllReduceChoices, 2> kept_ = {AllReduceChoices(""), AllReduceChoices("")};
  const std::vector<std::string> kOneMachine = {"a", "a"}, kTwoMachines = {"a", "b"};
};

TEST_F(AgreedAllReduces, TheChoiceOfRank0IsThatOfAllAndIsKept) {
  const AgreedAllReduce first = agree(quick(), kTwoMachines)[0];
  EXPECT_TRUE(first.measured_now);
  EXPECT_THAT(first.description, HasSubstr("order of ranks, 2 ranks on 2 machines: 1 | 1, memory; "));
  ASSERT_TRUE(kept_[0].find(first.description));
  EXPECT_EQ(kept_[0].find(first.description)->spec, first.spec);
  EXPECT_FALSE(kept_[0].find(first.description)->times.empty());
  EXPECT_TRUE(kept_[1].all().empty()) << "rank 1 keeps nothing";
  // What rank 1 has kept does not count.
  kept_[0].keep(first.description, {"chain/64K:1M:shuffle#2", {}});
  kept_[1].keep(first.description, {"chain/1M", {}});
  const AgreedAllReduce second = agree(quick(), kTwoMachines)[1];
  EXPECT_EQ(second.spec, "chain/64K:1M:shuffle#2");
  EXPECT_FALSE(second.measured_now);
}

TEST_F(AgreedAllReduces, AChoiceOfAnotherTopologyIsNotUsed) {
  const std::string two_machines = agree(quick(), kTwoMachines)[0].description;
  kept_[0].keep(two_machines, {"chain/64K", {}});
  EXPECT_FALSE(agree(quick(), kTwoMachines)[0].measured_now);
  const AgreedAllReduce one_machine = agree(quick(), kOneMachine)[0];
  EXPECT_TRUE(one_machine.measured_now);
  EXPECT_THAT(one_machine.description, HasSubstr("2 ranks on 1 machine: 2*1, memory"));
  EXPECT_THAT(agree(quick(), kOneMachine, 3)[0].description, HasSubstr("4 ranks on 1 machine: 1 + 3, memory"));
  AllReduceMeasuring other_transport = quick();
  other_transport.transport = "another";
  EXPECT_TRUE(agree(other_transport, kTwoMachines)[0].measured_now);
  AllReduceMeasuring any = quick();
  any.order = AllReduceOrder::kAny;
  EXPECT_TRUE(agree(any, kTwoMachines)[0].measured_now);
  AllReduceMeasuring on_wire = any;
  on_wire.wire = at::kBFloat16;
  const AgreedAllReduce rounded = agree(on_wire, kTwoMachines)[0];
  EXPECT_TRUE(rounded.measured_now);
  EXPECT_THAT(rounded.description, HasSubstr(", BFloat16 on the wire"));
}

TEST_F(AgreedAllReduces, WhatCannotRunHereIsMeasuredAgain) {
  const std::string description = agree(quick(), kTwoMachines)[0].description;
  for (const char* spec :
       {"ring", "shuffle#3", "xring:4K:chain", "nonsense", "chain:4K", "default", "nccl", "chain#7"}) {
    kept_[0].keep(description, {spec, {}});
    const AgreedAllReduce agreed = agree(quick(), kTwoMachines)[0];
    EXPECT_TRUE(agreed.measured_now) << spec;
    EXPECT_NE(agreed.spec, spec);
    EXPECT_EQ(kept_[0].find(description)->spec, agreed.spec);
  }
}

// The default may be forced wrong; it is used, and the numbers stay.
TEST_F(AgreedAllReduces, AForcedChoiceRuns) {
  const std::string description = agree(quick(), kOneMachine)[0].description;
  kept_[0].keep(description, {"chain/64K", {}});
  const AgreedAllReduce agreed = agree(quick(), kOneMachine)[0];
  EXPECT_EQ(agreed.spec, "chain/64K");
  const Engines engines = make_engines(2);
  const Communicators messages = connect_measured(engines, {{1, 1}, kOneMachine}, agreed.spec);
  EXPECT_TRUE(messages[0]->progresses_in_background());
  const Communicators memory = connect_measured(engines, {{1, 1}, kOneMachine}, "shared_memory");
  EXPECT_FALSE(memory[0]->progresses_in_background());
  const std::vector<at::Tensor> inputs = normal_values_of_all(2, 5000);
  EXPECT_TRUE(have_equal_bits(all_reduced(messages, inputs)[0], all_reduced(memory, inputs)[0]));
}

// With a ratio of 1 all but the fastest are given up, from 1 MiB on.
TEST(MeasuredAllReduce, SlowAlgorithmsAreNotMeasuredWithLargerTensors) {
  const Engines engines = make_engines(2);
  std::vector<MeasuredAllReduces> measured(2);
  on_processes(2, [&](size_t p) {
    AllReduceMeasuring measuring = quick();
    measuring.sizes = {4096, 8192, 1 << 20, 2 << 20};
    measuring.give_up_ratio = 1;
    measured[p] = measure_all_reduces(engines[p], 1, measuring);
  });
  std::map<int64_t, std::map<double, std::string>> by_size;
  for (const AllReduceTime& time : measured[0].times) by_size[time.bytes].emplace(time.seconds, time.algorithm);
  const size_t all = measured[0].in_rank_order.size();
  ASSERT_EQ(measured[0].times.size(), 3 * all + 1);
  EXPECT_EQ(measured[0].times.back().bytes, 2 << 20);
  EXPECT_EQ(measured[0].times.back().algorithm, by_size[1 << 20].begin()->second);
  EXPECT_EQ(measured[0].times[3 * all - 1].bytes, 1 << 20);
}

TEST(MeasuredAllReduce, AFailureEndsTheMeasurementOfAll) {
  const Engines engines = make_engines(2);
  std::mutex mutex;
  std::optional<core::Error> reported;
  std::atomic<int> meetings = 0;
  for (const auto& engine : engines) {
    engine->watch({.reported =
                       [&] {
                         const std::lock_guard lock(mutex);
                         return reported;
                       },
                   .report =
                       [&](const core::Error& error) {
                         const std::lock_guard lock(mutex);
                         reported = error;
                       },
                   .begin =
                       [&meetings, self = engine.get()](const char*) {
                         if (++meetings == 150) self->fail({core::ErrorCode::kPeerFailed, "the disk is gone"});
                       }});
  }
  std::array<std::string, 2> errors;
  on_processes(2, [&](size_t p) {
    errors[p] = core::message_of([&] { measure_all_reduces(engines[p], p == 0 ? 2 : 1, quick()); },
                                 core::ErrorCode::kPeerFailed);
  });
  EXPECT_EQ(errors[0], "the disk is gone");
  EXPECT_EQ(errors[1], "the disk is gone");
}

// It is a key of what is kept, a line each.
TEST(MeasuredAllReduce, IsDescribedInOneLine) {
  const std::vector<int> replicas = {1, 3, 1};
  const std::vector<std::string> machines = {"a", "b", "a"};
  const auto described = [&](AllReduceOrder order, std::optional<at::ScalarType> wire, const std::string& transport) {
    const Engines engines = make_engines(3);
    std::vector<std::string> texts(3);
    on_processes(3, [&](size_t p) {
      texts[p] = describe_measuring(engines[p], replicas[p],
                                    {.order = order, .wire = wire, .transport = transport, .machine = machines[p]});
    });
    EXPECT_EQ(texts[1], texts[0]);
    EXPECT_EQ(texts[2], texts[0]);
    EXPECT_EQ(order_of(texts[0]), order);
    return texts[0];
  };
  EXPECT_THAT(
      described(AllReduceOrder::kAny, at::kBFloat16, "Open\nMPI\x1f 4\t1"),
      ::testing::StartsWith("any order, 5 ranks on 2 machines: 2*1 | 3, Open MPI  4 1, BFloat16 on the wire; "));
  const std::string plain = described(AllReduceOrder::kOfRanks, std::nullopt, "");
  EXPECT_THAT(plain, ::testing::StartsWith("order of ranks, 5 ranks on 2 machines: 2*1 | 3, messages; "));
  EXPECT_EQ(plain.find('|', plain.find(';')), std::string::npos) << "one kind of machine";
}

}  // namespace
}  // namespace trainyard::parallel::measured_all_reduce_test
