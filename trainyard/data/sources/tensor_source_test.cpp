#include "trainyard/data/sources/tensor_source.h"

#include <algorithm>
#include <set>

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/pipeline/sample_order.h"

namespace trainyard::data::tensor_source_test {
namespace {

// Sample i is the number i, and the row (10 i, 10 i + 1).
core::NamedTensors numbered(int64_t samples) {
  const at::Tensor numbers = at::arange(samples, at::kLong);
  return {{"number", numbers}, {"row", numbers.unsqueeze(1).mul(10).add(at::arange(2, at::kLong)).to(at::kFloat)}};
}

std::vector<int64_t> numbers_of(const Batch& batch) {
  const at::Tensor numbers = batch.tensors["number"];
  return {numbers.const_data_ptr<int64_t>(), numbers.const_data_ptr<int64_t>() + numbers.numel()};
}

// Each replica's numbers, batch after batch.
std::vector<std::vector<int64_t>> drawn(TensorSource& source, int count) {
  std::vector<std::vector<int64_t>> all;
  for (int i = 0; i < count; ++i) {
    for (const Batch& batch : source.next()) all.push_back(numbers_of(batch));
  }
  return all;
}

using Numbers = std::vector<std::vector<int64_t>>;

TEST(TensorSource, AGlobalBatchRunsOnIntoTheNextEpoch) {
  TensorSource source(numbered(5), {.batch_size = 2, .replicas = 2});
  const std::vector<Batch> first = source.next();
  EXPECT_TRUE(first[1].tensors["row"].equal(at::arange(20, 40, 10, at::kFloat).unsqueeze(1).add(at::arange(2))));
  EXPECT_EQ(first[1].first_sample, 2);
  EXPECT_EQ(first[1].after, (Position{0, 4}));
  EXPECT_EQ(drawn(source, 2), (Numbers{{4, 0}, {1, 2}, {3, 4}, {0, 1}}));
  EXPECT_EQ(source.position(), (Position{2, 2}));
}

TEST(TensorSource, WithoutRepeatTheLastBatchesAreShort) {
  TensorSource source(numbered(5), {.batch_size = 2, .replicas = 2, .repeat = false});
  EXPECT_EQ(drawn(source, 2), (Numbers{{0, 1}, {2, 3}, {4}, {}}));
  EXPECT_EQ(source.position(), (Position{0, 5}));
  EXPECT_TRUE(source.next().empty());
  source.seek({0, 5});
  EXPECT_TRUE(source.next().empty());
  source.seek({});
  EXPECT_EQ(drawn(source, 1), (Numbers{{0, 1}, {2, 3}}));
}

TEST(TensorSource, DropsTheLastBatch) {
  TensorSource once(numbered(5), {.batch_size = 2, .repeat = false, .drop_last = true});
  EXPECT_EQ(drawn(once, 3), (Numbers{{0, 1}, {2, 3}}));
  TensorSource again(numbered(5), {.batch_size = 2, .drop_last = true});
  EXPECT_EQ(drawn(again, 3), (Numbers{{0, 1}, {2, 3}, {0, 1}}));
  again.seek({0, 4});
  EXPECT_EQ(again.position(), (Position{1, 0}));
}

TEST(TensorSource, ShufflesEachEpochAsThePipelineDoes) {
  TensorSource source(numbered(6), {.batch_size = 6, .shuffle = true, .seed = 3});
  const Numbers epochs = drawn(source, 2);
  for (int64_t epoch = 0; epoch < 2; ++epoch) EXPECT_EQ(epochs[epoch], epoch_order(6, {.shuffle_buffer = 6}, 3, epoch));
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST(TensorSource, SamplesDoNotDependOnReplicasOrProcesses) {
  TensorSource one(numbered(7), {.batch_size = 4, .shuffle = true, .seed = 5});
  TensorSource first(numbered(7), {.batch_size = 1, .replicas = 2, .total_replicas = 4, .shuffle = true, .seed = 5});
  TensorSource second(
      numbered(7),
      {.batch_size = 1, .replicas = 2, .first_replica = 2, .total_replicas = 4, .shuffle = true, .seed = 5});
  for (int step = 0; step < 5; ++step) {
    std::vector<int64_t> together;
    for (TensorSource* const process : {&first, &second}) {
      for (const Batch& batch : process->next()) together.push_back(numbers_of(batch).at(0));
    }
    EXPECT_EQ(together, numbers_of(one.next()[0]));
    EXPECT_EQ(second.position(), one.position());
  }
}

TEST(TensorSource, GoesOnWhereItWasSaved) {
  const TensorSourceOptions options{.batch_size = 3, .replicas = 2, .shuffle = true, .seed = 9};
  TensorSource first(numbered(10), options), second(numbered(10), options);
  drawn(first, 4);
  ASSERT_EQ(first.position(), (Position{2, 4}));
  core::MemoryState state;
  first.save(state);
  second.load(state);
  EXPECT_EQ(drawn(second, 5), drawn(first, 5));
}

TEST(TensorSource, BatchesAreNewMemory) {
  const core::NamedTensors tensors = numbered(4);
  TensorSource source(tensors, {.batch_size = 4});
  source.next()[0].tensors["row"].zero_();
  EXPECT_EQ(tensors["row"][3][1].item<float>(), 31);
}

// An anchor and an example of another number, as two tensors of one sample without a batch dimension.
core::NamedTensors pair_of(const core::NamedTensors& tensors, const std::vector<int64_t>& samples,
                           core::RandomStream& random) {
  EXPECT_EQ(samples.size(), 1U);
  const auto size = static_cast<uint64_t>(tensors["number"].size(0));
  const auto other = (samples.at(0) + 1 + static_cast<int64_t>(random.below(size - 1))) % static_cast<int64_t>(size);
  return {{"anchor", tensors["row"][samples.at(0)]}, {"other", tensors["row"][other]}};
}

TEST(TensorSource, MakesWhatTheCallerLikesOfTheSamples) {
  const TensorSourceOptions options{
      .batch_size = 1, .replicas = 2, .shuffle = true, .seed = 2, .repeat = false, .make_batch = pair_of};
  TensorSource source(numbered(9), options);
  std::vector<float> anchors, others;
  const auto take = [&](TensorSource& from) {
    for (const Batch& batch : from.next()) {
      if (batch.tensors.empty()) continue;
      EXPECT_EQ(batch.tensors["anchor"].dim(), 1);
      anchors.push_back(batch.tensors["anchor"][0].item<float>());
      others.push_back(batch.tensors["other"][0].item<float>());
    }
  };
  for (int i = 0; i < 5; ++i) take(source);
  EXPECT_TRUE(source.next().empty());
  std::vector<float> sorted = anchors;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, (std::vector<float>{0, 10, 20, 30, 40, 50, 60, 70, 80}));

  // How much further the other one lies, round the nine: each sample draws anew.
  std::set<int> steps;
  for (size_t i = 0; i < others.size(); ++i) steps.insert((static_cast<int>(others[i] - anchors[i]) / 10 + 9) % 9);
  EXPECT_GT(steps.size(), 3U);

  const std::vector<float> chosen = others;
  TensorSource resumed(numbered(9), options);
  resumed.seek({0, 4});
  others.clear();
  for (int i = 0; i < 3; ++i) take(resumed);
  EXPECT_EQ(others, std::vector<float>(chosen.begin() + 4, chosen.end()));
}

TEST(TensorSource, RefusesWhatCannotBe) {
  const auto with = [](const core::NamedTensors& tensors, const TensorSourceOptions& options) {
    return core::problem_of([&] { TensorSource(tensors, options); });
  };
  EXPECT_EQ(with(numbered(4), {.batch_size = 0}), "the batch size of a source cannot be used");
  EXPECT_EQ(with(numbered(4), {.replicas = 0}), "the number of replicas of a source cannot be used");
  EXPECT_EQ(with(numbered(4), {.first_replica = 1}), "the number of all replicas of a source cannot be used");
  EXPECT_EQ(with(numbered(4), {.replicas = 3, .total_replicas = 2}),
            "the number of all replicas of a source cannot be used");
  EXPECT_EQ(with(numbered(4), {.batch_size = 5, .drop_last = true}),
            "without the last, short batch there is none at all");
  EXPECT_EQ(with({}, {}), "a source of samples needs at least one tensor");
  EXPECT_EQ(with(numbered(0), {}), "the tensors of a source hold no samples");
  EXPECT_EQ(with({{"a", at::zeros({})}}, {}), "tensor 'a' has no dimension of samples");
  EXPECT_EQ(with({{"a", at::zeros({3})}, {"b", at::zeros({2, 3})}}, {}),
            "tensor 'b' holds another number of samples than 'a'");
  const auto message = [](const core::NamedTensors& tensors, const TensorSourceOptions& options) {
    return core::message_of([&] { TensorSource(tensors, options); });
  };
  EXPECT_THAT(message(numbered(4), {.first_replica = -1}), core::Says("the first replica", "at least 0, got -1"));
  EXPECT_THAT(message(numbered(4), {.replicas = 2, .first_replica = 1, .total_replicas = 2}),
              core::Says("the number of all replicas", "expected at least 3, got 2"));
  EXPECT_EQ(message(numbered(4), {.replicas = 2, .first_replica = 1, .total_replicas = 3}), "no error");
  EXPECT_THAT(message({{"a", at::zeros({3})}, {"b", at::zeros({2, 3})}}, {}), core::Says("expected 3, got 2"));
  EXPECT_THAT(message(numbered(7), {.batch_size = 4, .replicas = 2, .drop_last = true}),
              core::Says("expected at least 8 samples, got 7"));
  EXPECT_EQ(message(numbered(8), {.batch_size = 4, .replicas = 2, .drop_last = true}), "no error");
  TensorSource source(numbered(4), {});
  EXPECT_EQ(core::problem_of([&] { source.seek({0, 5}); }), "input position is not in the data set");
}

}  // namespace
}  // namespace trainyard::data::tensor_source_test
