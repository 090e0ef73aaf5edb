#include "trainyard/data/pipeline/synthetic_source.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::data::synthetic_source_test {
namespace {

SyntheticOptions small_options() {
  return {.batch_size = 8, .height = 16, .width = 12, .classes = 5, .epoch_size = 100, .seed = 3};
}

std::vector<int64_t> labels_of(const Batch& batch) {
  const int64_t* labels = batch.labels().const_data_ptr<int64_t>();
  return {labels, labels + batch.labels().numel()};
}

TEST(SyntheticSource, PixelsAreCutNormal) {
  SyntheticSource source(small_options());
  const Batch batch = source.next()[0];
  ASSERT_EQ(batch.images().sizes(), (at::IntArrayRef{8, 3, 16, 12}));
  const float* pixels = batch.images().const_data_ptr<float>();
  const int64_t count = batch.images().numel();
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_GE(pixels[i], 7.0F);
    ASSERT_LE(pixels[i], 247.0F);
    sum += pixels[i];
    squares += pixels[i] * pixels[i];
  }
  const double mean = sum / static_cast<double>(count);
  const double deviation = std::sqrt(squares / static_cast<double>(count) - mean * mean);
  // Cutting at two deviations leaves 0.8796 of the deviation.
  EXPECT_NEAR(mean, 127, 5 * 60 / std::sqrt(count));
  EXPECT_NEAR(deviation, 60 * 0.8796, 2);
}

TEST(SyntheticSource, SameImagesNewLabels) {
  SyntheticSource source(small_options());
  const Batch first = source.next()[0];
  const Batch second = source.next()[0];
  EXPECT_TRUE(first.images().is_same(second.images()));
  EXPECT_NE(labels_of(first), labels_of(second));
  std::set<int64_t> seen;
  for (int i = 0; i < 30; ++i) {
    for (int64_t label : labels_of(source.next()[0])) seen.insert(label);
  }
  EXPECT_EQ(seen, (std::set<int64_t>{0, 1, 2, 3}));
}

TEST(SyntheticSource, LooksAsItIsAskedTo) {
  SyntheticOptions options = small_options();
  options.height = options.width = 64;
  options.samples = {.mean = 112, .standard_deviation = 70, .clipped = true, .fixed_labels = true};
  SyntheticSource source(options);
  const Batch first = source.next()[0];
  EXPECT_EQ(labels_of(first), labels_of(source.next()[0]));
  const at::Tensor pixels = first.images();
  EXPECT_EQ(pixels.min().item<float>(), 0);           // two deviations below the mean lies -28
  EXPECT_NEAR(pixels.max().item<float>(), 252, 0.5);  // two deviations above it
  // The normal distribution cut at two deviations has its lower end at -1.6 of them: its mean moves a little.
  double expected = 0, mass = 0;
  for (double z = -2; z < 2; z += 1e-4) {
    const double density = std::exp(-z * z / 2);
    expected += density * std::max(112 + 70 * z, 0.0);
    mass += density;
  }
  EXPECT_NEAR(pixels.mean().item<double>(), expected / mass, 1);
}

TEST(SyntheticSource, ReplicasShareOneGlobalBatch) {
  SyntheticSource one(small_options());
  SyntheticOptions options = small_options();
  options.batch_size = 4;
  options.local_replicas = options.total_replicas = 2;
  SyntheticSource two(options);
  for (int i = 0; i < 3; ++i) {
    const Batch whole = one.next()[0];
    const std::vector<Batch> parts = two.next();
    std::vector<int64_t> labels = labels_of(parts[0]);
    for (int64_t label : labels_of(parts[1])) labels.push_back(label);
    EXPECT_EQ(labels, labels_of(whole));
    EXPECT_TRUE(parts[1].images().equal(whole.images().slice(0, 4, 8)));
    EXPECT_EQ(parts[1].first_sample, 4);
    EXPECT_EQ(parts[1].after, whole.after);
  }
}

TEST(SyntheticSource, AProcessHasItsSliceOfTheGlobalBatch) {
  SyntheticSource one(small_options());
  SyntheticOptions options = small_options();
  options.batch_size = 4;
  options.first_replica = 1;
  options.total_replicas = 2;
  SyntheticSource second(options);
  for (int i = 0; i < 3; ++i) {
    const Batch whole = one.next()[0], slice = second.next()[0];
    const std::vector<int64_t> labels = labels_of(whole);
    EXPECT_EQ(labels_of(slice), std::vector<int64_t>(labels.begin() + 4, labels.end()));
    EXPECT_TRUE(slice.images().equal(whole.images().slice(0, 4, 8)));
    EXPECT_EQ(slice.first_sample, 4);
    EXPECT_EQ(slice.after, whole.after);
  }
}

TEST(SyntheticSource, ResumesAtAPosition) {
  SyntheticSource whole(small_options());
  for (int i = 0; i < 15; ++i) whole.next();
  EXPECT_EQ(whole.position(), (Position{1, 20}));
  SyntheticSource resumed(small_options());
  resumed.seek(whole.position());
  EXPECT_EQ(labels_of(resumed.next()[0]), labels_of(whole.next()[0]));
}

TEST(SyntheticSource, SaysWhichOptionIsTooSmall) {
  const auto problem = [](void (*change)(SyntheticOptions&)) {
    SyntheticOptions options = small_options();
    change(options);
    return core::problem_of([&] { options.validate(); });
  };
  EXPECT_EQ(problem([](SyntheticOptions& o) { o.batch_size = 0; }), "batch size must be at least 1");
  EXPECT_EQ(problem([](SyntheticOptions& o) { o.local_replicas = 0; }), "there must be at least 1 replica");
  EXPECT_EQ(problem([](SyntheticOptions& o) { o.first_replica = -1; }), "local replicas must be among all replicas");
  EXPECT_EQ(problem([](SyntheticOptions& o) { o.height = 0; }), "image height must be at least 1");
  EXPECT_EQ(problem([](SyntheticOptions& o) { o.width = 0; }), "image width must be at least 1");
  EXPECT_EQ(problem([](SyntheticOptions& o) { o.classes = 1; }), "there must be at least 2 classes");
  EXPECT_EQ(problem([](SyntheticOptions& o) { o.epoch_size = 0; }), "an epoch must have at least 1 sample");
}

TEST(SyntheticSource, RefusesBadOptions) {
  SyntheticOptions options = small_options();
  options.classes = 1;
  EXPECT_THROW(SyntheticSource{options}, core::Error);
  options = small_options();
  options.first_replica = 1;
  EXPECT_THROW(SyntheticSource{options}, core::Error);
}

TEST(SyntheticSource, SaysTheNumberThatIsTooSmall) {
  const auto actual = [](void (*change)(SyntheticOptions&)) {
    SyntheticOptions options = small_options();
    change(options);
    return core::thrown_by([&] { options.validate(); }).detail().actual;
  };
  EXPECT_EQ(actual([](SyntheticOptions& o) { o.batch_size = -2; }), "-2");
  EXPECT_EQ(actual([](SyntheticOptions& o) { o.local_replicas = -3; }), "-3");
  EXPECT_EQ(actual([](SyntheticOptions& o) { o.first_replica = -4; }), "-4");
  EXPECT_EQ(actual([](SyntheticOptions& o) { o.height = -5; }), "-5");
  EXPECT_EQ(actual([](SyntheticOptions& o) { o.width = -6; }), "-6");
  EXPECT_EQ(actual([](SyntheticOptions& o) { o.classes = -7; }), "-7");
  EXPECT_EQ(actual([](SyntheticOptions& o) { o.epoch_size = -8; }), "-8");
  EXPECT_EQ(actual([](SyntheticOptions& o) { o.first_replica = 1; }), "1") << "behind the last one";
  SyntheticOptions least = small_options();
  least.batch_size = 1;
  least.height = 1;
  least.width = 1;
  least.classes = 2;
  least.epoch_size = 1;
  EXPECT_NO_THROW(least.validate());
}

}  // namespace
}  // namespace trainyard::data::synthetic_source_test
