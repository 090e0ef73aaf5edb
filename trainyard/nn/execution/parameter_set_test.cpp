#include "trainyard/nn/execution/parameter_set.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::nn::parameter_set_test {
namespace {

ParameterSet small_set(ParameterSetOptions options = {}) {
  ParameterSet set(options);
  set.declare({"a.weight", {3, 5}, Initializer::normal(1)});
  set.declare({"b.weight", {2, 2, 3, 3}, Initializer::he_normal()});
  set.declare({"b.bias", {2}, Initializer::constant(0.5), false});
  set.declare_buffer({"b.running_var", {2}, Initializer::ones()});
  return set;
}

TEST(ParameterSet, LaysSegmentsOutInReverseAndAligned) {
  ParameterSet set = small_set();
  set.allocate();
  ASSERT_EQ(set.segments().size(), 3u);
  EXPECT_EQ(set.segments()[0].spec.name, "b.bias");
  EXPECT_EQ(set.segments()[1].spec.name, "b.weight");
  EXPECT_EQ(set.segments()[2].spec.name, "a.weight");
  EXPECT_EQ(set.segments()[1].offset, 16);
  EXPECT_EQ(set.segments()[2].offset, 16 + 48);
  EXPECT_EQ(set.total(), 16 + 48 + 16);
  const ParameterId weight = *set.find("a.weight");
  EXPECT_EQ(set.value(weight).sizes(), at::IntArrayRef({3, 5}));
  set.value(weight).fill_(7);
  EXPECT_EQ(set.values()[64].item<float>(), 7);
  EXPECT_EQ(set.values().narrow(0, 64, 15).sum().item<float>(), 105);
  EXPECT_EQ(set.values()[79].item<float>(), 0) << "a gap";
}

TEST(ParameterSet, GivesViewsAsLibtorchMakesThem) {
  at::Tensor kept;
  {
    ParameterSet set = small_set({.dtype = at::kDouble});
    set.allocate();
    set.initialize(3);
    for (const Segment& segment : set.segments()) {
      const std::pair<at::Tensor, at::Tensor> both[] = {{set.value(segment.id), set.values()},
                                                        {set.gradient(segment.id), set.gradients()}};
      for (const auto& [view, block] : both) {
        const at::Tensor expected = block.narrow(0, segment.offset, segment.count).view(segment.spec.shape);
        EXPECT_EQ(view.const_data_ptr(), expected.const_data_ptr());
        EXPECT_EQ(view.sizes(), expected.sizes());
        EXPECT_EQ(view.strides(), expected.strides());
        EXPECT_EQ(view.dtype(), expected.dtype());
        EXPECT_EQ(view.device(), expected.device());
        EXPECT_TRUE(view.is_contiguous());
        // Autograd refuses a backward whose saved tensors have changed by their version.
        const auto version = block._version();
        static_cast<void>(view.add_(1));
        EXPECT_EQ(block._version(), version + 1);
        static_cast<void>(block.add_(1));
        EXPECT_EQ(view._version(), version + 2);
      }
    }
    kept = set.value(*set.find("a.weight")).view({15}).narrow(0, 3, 2).fill_(9);
  }
  EXPECT_EQ(kept.sum().item<double>(), 18) << "a view keeps the memory";
}

TEST(ParameterSet, InitializesEachByItsNameOnAnyThreadCount) {
  ParameterSet first = small_set(), second;
  second.declare({"b.weight", {2, 2, 3, 3}, Initializer::he_normal()});  // alone: order does not matter
  first.allocate();
  second.allocate();
  first.initialize(3);
  second.initialize(3);
  EXPECT_TRUE(at::equal(first.value(*first.find("b.weight")), second.value(*second.find("b.weight"))));
  EXPECT_EQ(first.value(*first.find("b.bias"))[1].item<float>(), 0.5f);
  EXPECT_EQ(first.buffer(0)[1].item<float>(), 1);
  second.initialize(4);
  EXPECT_FALSE(at::equal(first.value(*first.find("b.weight")), second.value(*second.find("b.weight"))));

  const int threads = at::get_num_threads();
  at::Tensor one = at::empty({100, 313}), two = at::empty({100, 313});
  at::set_num_threads(1);
  initialize_tensor(one, Initializer::truncated_normal(1), 5, "w");
  at::set_num_threads(2);
  initialize_tensor(two, Initializer::truncated_normal(1), 5, "w");
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one, two));
}

// A seed means these numbers: each 4,096 elements are a stream of the name and their place in that order.
TEST(Initializers, AreTheStreamsOfTheirChunks) {
  constexpr int64_t kChunk = 4096, kCount = 2 * kChunk + 5;
  std::vector<float> normals(kCount), truncated(kCount), uniforms(kCount);
  for (int64_t begin = 0; begin < kCount; begin += kChunk) {
    const int64_t size = std::min(kChunk, kCount - begin);
    const auto stream = [&] { return core::RandomStream(7, "conv.weight", {static_cast<uint64_t>(begin / kChunk)}); };
    stream().normals(normals.data() + begin, size);
    stream().truncated_normals(truncated.data() + begin, size);
    stream().uniforms(-0.25F, 0.25F, uniforms.data() + begin, size);
  }
  const auto expect_filled = [&](const Initializer& init, const std::vector<float>& drawn, float scale) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      at::Tensor filled = at::empty({kCount}, dtype);
      initialize_tensor(filled, init, 7, "conv.weight");
      const at::Tensor numbers = filled.to(at::kFloat);
      for (size_t i = 0; i < drawn.size(); ++i) {
        ASSERT_EQ(numbers.const_data_ptr<float>()[i], scale * drawn[i]) << i << " of " << at::toString(dtype);
      }
    }
  };
  expect_filled(Initializer::normal(0.5), normals, 0.5F);
  expect_filled(Initializer::truncated_normal(2), truncated, 2);
  expect_filled(Initializer::uniform(0.25), uniforms, 1);
}

struct Moments {
  double deviation, largest;
};
Moments moments(const Initializer& init) {
  at::Tensor tensor = at::empty({128, 64, 3, 3}, at::kDouble);  // fan in 576, fan out 1152
  initialize_tensor(tensor, init, 1, "w");
  EXPECT_LT(std::abs(tensor.mean().item<double>()), 5 * tensor.std().item<double>() / std::sqrt(73728));
  return {tensor.std().item<double>(), tensor.abs().max().item<double>()};
}

// Standard errors of the deviations below are about 0.3 %; the bounds are four of them.
TEST(Initializers, HaveTheDeviationOfTheirFormula) {
  EXPECT_NEAR(moments(Initializer::normal(0.5)).deviation, 0.5, 0.006);
  const Moments truncated = moments(Initializer::truncated_normal(0.5));
  EXPECT_NEAR(truncated.deviation, 0.5 * 0.8796, 0.006);
  EXPECT_LE(truncated.largest, 1.0);
  EXPECT_GT(moments(Initializer::normal(0.5)).largest, 1.0);
  const Moments uniform = moments(Initializer::uniform(2));
  EXPECT_NEAR(uniform.deviation, 2 / std::sqrt(3), 0.014);
  EXPECT_LE(uniform.largest, 2.0);
  EXPECT_NEAR(moments(Initializer::variance_scaling()).deviation, std::sqrt(1.0 / 576), 0.0005);
  EXPECT_NEAR(moments(Initializer::variance_scaling(3, Initializer::Fan::kAverage)).deviation, std::sqrt(3.0 / 864),
              0.0007);
  EXPECT_NEAR(moments(Initializer::he_normal()).deviation, std::sqrt(2.0 / 1152), 0.0005);
  EXPECT_NEAR(moments(Initializer::he_normal(Initializer::Fan::kIn)).deviation, std::sqrt(2.0 / 576), 0.0007);
  const Moments he = moments(Initializer::he_uniform());
  EXPECT_LE(he.largest, 1 / std::sqrt(576.0));
  EXPECT_NEAR(he.deviation, 1 / std::sqrt(3 * 576.0), 0.0003);
}

// The fans of vectors and matrices have no field; the bounds are four standard errors.
TEST(Initializers, FansOfVectorsAndMatricesAreTheirExtents) {
  const auto deviation = [](at::IntArrayRef shape, const Initializer& init) {
    at::Tensor tensor = at::empty(shape, at::kDouble);
    initialize_tensor(tensor, init, 1, "w");
    return tensor.std().item<double>();
  };
  EXPECT_NEAR(deviation({10000}, Initializer::he_normal(Initializer::Fan::kIn)), std::sqrt(2 / 1e4), 0.0004);
  EXPECT_NEAR(deviation({10000}, Initializer::he_normal(Initializer::Fan::kOut)), std::sqrt(2 / 1e4), 0.0004);
  EXPECT_NEAR(deviation({400, 50}, Initializer::he_normal(Initializer::Fan::kIn)), std::sqrt(2 / 50.0), 0.004);
  EXPECT_NEAR(deviation({400, 50}, Initializer::he_normal(Initializer::Fan::kOut)), std::sqrt(2 / 400.0), 0.0015);
  EXPECT_NEAR(deviation({400, 50}, Initializer::variance_scaling(1, Initializer::Fan::kAverage)), std::sqrt(1 / 225.0),
              0.0014);
  at::Tensor turned = at::empty({4, 3}).t();
  EXPECT_EQ(core::message_of([&] { initialize_tensor(turned, Initializer::normal(1), 1, "w"); }),
            "initialize_tensor needs a contiguous CPU tensor: w");
}

// PyTorch's dirac_ on the first filters: a convolution with them copies its channels.
TEST(Initializers, AnIdentityCopiesChannelsAndLeavesTheOtherFilters) {
  at::Tensor weight = at::empty({7, 4, 3, 2}, at::kFloat), others = at::empty_like(weight);
  initialize_tensor(weight, Initializer::he_uniform_identity(), 1, "w");
  initialize_tensor(others, Initializer::he_uniform(), 1, "w");
  for (int64_t o = 0; o < 4; ++o) {
    EXPECT_EQ(weight[o].sum().item<float>(), 1);
    EXPECT_EQ(weight[o][o][1][1].item<float>(), 1) << o;
    EXPECT_EQ(weight[o].count_nonzero().item<int64_t>(), 1) << o;
  }
  EXPECT_TRUE(at::equal(weight.narrow(0, 4, 3), others.narrow(0, 4, 3)));
  at::Tensor wide = at::empty({2, 5, 3, 3}, at::kDouble);
  initialize_tensor(wide, Initializer::he_uniform_identity(), 1, "w");
  EXPECT_EQ(wide.sum().item<double>(), 2);
  EXPECT_EQ(wide[1][1][1][1].item<double>(), 1);
  at::Tensor matrix = at::empty({4, 4}, at::kFloat);
  EXPECT_EQ(core::code_of([&] { initialize_tensor(matrix, Initializer::he_uniform_identity(), 1, "w"); }),
            core::ErrorCode::kInvalidArgument);
}

TEST(ParameterSet, BindsASecondExecutorByNameAndShape) {
  ParameterSet set = small_set();
  set.allocate();
  EXPECT_EQ(set.declare({"b.bias", {2}, {}}), *set.find("b.bias"));
  EXPECT_EQ(set.declare_buffer({"b.running_var", {2}, {}}), 0);
  EXPECT_EQ(core::code_of([&] { set.declare({"b.bias", {3}, {}}); }), core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(core::code_of([&] { set.declare({"b.bia", {2}, {}}); }), core::ErrorCode::kNotFound);
  EXPECT_EQ(core::code_of([&] { set.allocate(); }), core::ErrorCode::kInvalidArgument);
}

TEST(ParameterSet, RefusesTwoParametersOfOneName) {
  ParameterSet set = small_set();
  EXPECT_EQ(core::code_of([&] { set.declare({"b.bias", {2}, {}}); }), core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(core::code_of([&] { set.initialize(1); }), core::ErrorCode::kInvalidArgument) << "not allocated";
}

TEST(ParameterSet, SharesValuesButNotGradientsAndBuffers) {
  ParameterSet owner = small_set();
  owner.allocate();
  owner.initialize(1);
  ParameterSet sharer = ParameterSet::sharing_values(owner);
  const uint64_t version = sharer.version();
  owner.values().fill_(3);
  owner.values_changed();
  owner.gradients().fill_(1);
  owner.buffer(0).fill_(9);
  EXPECT_EQ(sharer.value(*sharer.find("b.bias"))[0].item<float>(), 3);
  EXPECT_GT(sharer.version(), version) << "caches of the sharer must see the owner's change";
  EXPECT_EQ(sharer.gradients().abs().sum().item<float>(), 0);
  EXPECT_EQ(sharer.buffer(0)[0].item<float>(), 1);
}

TEST(ParameterSet, ClonesAndCopies) {
  ParameterSet set = small_set();
  set.allocate();
  set.initialize(1);
  ParameterSet copy = set.clone();
  EXPECT_TRUE(at::equal(copy.values(), set.values()));
  set.values().mul_(2);
  set.buffer(0).fill_(4);
  EXPECT_FALSE(at::equal(copy.values(), set.values()));
  const uint64_t version = copy.version();
  copy.copy_from(set);
  EXPECT_TRUE(at::equal(copy.values(), set.values()));
  EXPECT_EQ(copy.buffer(0)[0].item<float>(), 4);
  EXPECT_GT(copy.version(), version) << "packed copies of the values before must not be used again";
  ParameterSet other;
  other.declare({"a.weight", {3, 5}, {}});
  other.allocate();
  EXPECT_EQ(core::code_of([&] { copy.copy_from(other); }), core::ErrorCode::kInvalidArgument);
}

TEST(ParameterSet, FreezesAndThawsEachParameter) {
  ParameterSet set = small_set();
  const ParameterId weight = *set.find("a.weight"), bias = *set.find("b.bias");
  EXPECT_TRUE(set.trainable(weight));
  EXPECT_TRUE(set.all_trainable());
  EXPECT_EQ(set.trainable_version(), 0U);
  set.set_trainable(bias, false);  // allowed before allocate(), too
  set.allocate();
  EXPECT_FALSE(set.trainable(bias));
  EXPECT_TRUE(set.trainable(weight));
  EXPECT_FALSE(set.all_trainable());
  const uint64_t version = set.trainable_version();
  EXPECT_GT(version, 0U);
  set.set_trainable(bias, false);
  EXPECT_EQ(set.trainable_version(), version) << "nothing changed";

  ParameterSet copy = set.clone(), sharer = ParameterSet::sharing_values(set);
  for (ParameterSet* each : {&copy, &sharer}) {
    EXPECT_FALSE(each->trainable(bias));
    EXPECT_FALSE(each->all_trainable());
    each->set_trainable(bias, true);
    EXPECT_TRUE(each->all_trainable());
    EXPECT_GT(each->trainable_version(), version);
  }
  EXPECT_FALSE(set.trainable(bias)) << "the flags are each set's own";
  EXPECT_EQ(set.trainable_version(), version);
}

TEST(ParameterSet, FindsParametersByPattern) {
  ParameterSet set = small_set();
  EXPECT_EQ(core::code_of([&] { set.matching("*"); }), core::ErrorCode::kInvalidArgument) << "not allocated";
  set.allocate();
  for (const Segment& segment : set.segments()) EXPECT_EQ(segment.id, *set.find(segment.spec.name));
  EXPECT_EQ(set.matching("b.*"), (std::vector<ParameterId>{*set.find("b.bias"), *set.find("b.weight")}));
  EXPECT_EQ(set.matching("a.weight"), (std::vector<ParameterId>{*set.find("a.weight")}));
  const std::string message = core::message_of([&] { set.matching("c.*"); }, core::ErrorCode::kNotFound);
  EXPECT_NE(message.find("no parameter is named as 'c.*'"), std::string::npos) << message;
}

at::Tensor first_two_columns() {
  at::Tensor mask = at::full({3, 5}, 1, at::kByte);
  mask.narrow(1, 0, 2).zero_();
  return mask;
}

// Whether the weight has zeros where the mask says so, and nowhere else.
bool obeys_mask(const ParameterSet& set) {
  const at::Tensor weight = set.value(*set.find("a.weight"));
  return weight.narrow(1, 0, 2).eq(0).all().item<bool>() && weight.narrow(1, 2, 3).ne(0).all().item<bool>();
}

TEST(ParameterSet, HoldsMaskedElementsAtZero) {
  ParameterSet set = small_set();
  set.allocate();
  set.initialize(1);
  const ParameterId weight = *set.find("a.weight");
  EXPECT_FALSE(set.mask(weight).defined());
  const uint64_t version = set.version();
  set.set_mask(weight, first_two_columns());
  EXPECT_TRUE(obeys_mask(set));
  EXPECT_GT(set.version(), version);
  EXPECT_TRUE(set.mask(weight).equal(first_two_columns().to(at::kBool)));
  EXPECT_FALSE(set.mask(*set.find("b.bias")).defined());
  set.initialize(2);
  EXPECT_TRUE(obeys_mask(set));
  set.value(weight).fill_(std::numeric_limits<float>::infinity());
  set.apply_mask(weight);
  EXPECT_TRUE(obeys_mask(set));

  set.set_mask(weight, {});
  EXPECT_FALSE(set.mask(weight).defined());
  set.value(weight).fill_(3);
  set.apply_mask(weight);
  EXPECT_FALSE(obeys_mask(set));
}

TEST(ParameterSet, MasksGoWithTheValues) {
  ParameterSet set = small_set(), copied = small_set(), loaded = small_set();
  for (ParameterSet* each : {&set, &copied, &loaded}) {
    each->allocate();
    each->initialize(1);
  }
  const ParameterId weight = *set.find("a.weight");
  ParameterSet sharer = ParameterSet::sharing_values(set);
  set.set_mask(weight, first_two_columns().to(at::kFloat));
  ParameterSet clone = set.clone();
  copied.copy_from(set);
  core::MemoryState masked, free;
  set.save(masked);
  EXPECT_EQ(masked.names("a."), (std::vector<std::string>{"a.weight", "a.weight.mask"}));
  loaded.save(free);
  loaded.load(masked);
  for (ParameterSet* each : {&sharer, &clone, &copied, &loaded}) {
    each->value(weight).fill_(2);
    each->apply_mask(weight);
    EXPECT_TRUE(obeys_mask(*each));
  }
  clone.set_mask(weight, {});
  EXPECT_TRUE(set.mask(weight).defined()) << "a clone's masks are its own";
  loaded.load(free);
  EXPECT_FALSE(loaded.mask(weight).defined());
}

TEST(ParameterSet, RefusesMasksThatCannotBe) {
  ParameterSet set = small_set(), device = small_set({.device = at::kMeta});
  set.allocate();
  device.allocate();
  const ParameterId weight = *set.find("a.weight");
  const auto message = [&](const at::Tensor& mask) { return core::message_of([&] { set.set_mask(weight, mask); }); };
  EXPECT_NE(message(at::full({5, 3}, 1, at::kByte)).find("another shape"), std::string::npos);
  EXPECT_NE(message(at::full({3, 5}, 0.5)).find("other than 0 and 1"), std::string::npos);
  EXPECT_EQ(core::code_of([&] { device.set_mask(weight, first_two_columns()); }), core::ErrorCode::kUnsupported);
}

// A set on a device gets the zeros, but no masks, which would be written as host memory.
TEST(ParameterSet, MasksStayInHostMemory) {
  ParameterSet set = small_set(), device = small_set({.device = at::kMeta});
  set.allocate();
  device.allocate();
  const ParameterId weight = *set.find("a.weight");
  set.set_mask(weight, first_two_columns());
  device.copy_from(set);
  ASSERT_FALSE(device.mask(weight).defined());
  device.apply_mask(weight);
}

TEST(ParameterSet, SavesAndLoadsEverythingByName) {
  ParameterSet set = small_set(), fresh = small_set();
  set.allocate();
  fresh.allocate();
  set.initialize(1);
  set.buffer(0).fill_(6);
  core::MemoryState state;
  set.save(state);
  EXPECT_EQ(state.names(), (std::vector<std::string>{"a.weight", "b.bias", "b.running_var", "b.weight"}));
  const uint64_t version = fresh.version();
  fresh.load(state);
  EXPECT_TRUE(at::equal(fresh.values(), set.values()));
  EXPECT_TRUE(at::equal(fresh.buffer(0), set.buffer(0)));
  EXPECT_GT(fresh.version(), version);
}

// Values of each type that a set may have: infinity is not left where the mask says zero.
TEST(ParameterSet, MasksValuesOfEveryType) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(at::toString(dtype));
    ParameterSet set = small_set({.dtype = dtype});
    set.allocate();
    set.values().fill_(7);
    const ParameterId weight = *set.find("a.weight");
    set.set_mask(weight, first_two_columns());
    EXPECT_TRUE(obeys_mask(set));
    EXPECT_EQ(set.values().eq(7).sum().item<int64_t>(), set.total() - 6) << "nothing beside the masked elements";
    set.value(weight).fill_(std::numeric_limits<double>::infinity());
    set.apply_mask(weight);
    EXPECT_TRUE(obeys_mask(set));
  }
}

TEST(ParameterSet, LiesInTheMemoryThatItIsGiven) {
  ParameterSet set = small_set({.dtype = at::kDouble});
  at::Tensor values, gradients;
  const auto memory = [](at::Tensor& block) {
    return [&block](int64_t elements, at::ScalarType dtype) { return block = at::full({elements}, 0, dtype); };
  };
  set.place_values(memory(values));
  set.place_gradients(memory(gradients));
  set.allocate();
  ASSERT_EQ(values.numel(), 80);
  ASSERT_EQ(gradients.numel(), 80);
  EXPECT_EQ(set.values().scalar_type(), at::kDouble);
  EXPECT_EQ(set.values().const_data_ptr(), values.const_data_ptr());
  EXPECT_EQ(set.gradients().const_data_ptr(), gradients.const_data_ptr());
  EXPECT_EQ(core::message_of([&] { set.place_values(memory(values)); }),
            "cannot place the values of a parameter set after allocate(); make the executors that declare its "
            "parameters, then allocate(), then use it");

  ParameterSet own = small_set(), empty;
  int asked = 0;
  const auto nothing = [&asked](int64_t, at::ScalarType) {
    ++asked;
    return at::Tensor();
  };
  own.place_values(nothing);
  own.allocate();
  EXPECT_EQ(own.values().abs().sum().item<float>(), 0) << "zeros of its own";
  EXPECT_EQ(own.total(), 80);
  empty.place_values(nothing);
  empty.allocate();
  EXPECT_EQ(asked, 1) << "a set without elements asks for none";
}

TEST(ParameterSet, BeginsWithWhatIsProvided) {
  ParameterSet set;
  const ParameterId first = set.declare({"first", {2}, {Initializer::Kind::kFromModule}});
  const ParameterId second = set.declare({"second", {3}, Initializer::ones()});
  const int count = set.declare_buffer({"count", {2}, {Initializer::Kind::kFromModule}});
  const int mean = set.declare_buffer({"mean", {2}, Initializer::constant(4)});
  set.provide(first, at::full({2}, 5.0F));
  set.provide_buffer(count, at::full({2}, 9, at::kLong));
  set.allocate();
  set.initialize(1);
  EXPECT_TRUE(set.value(first).eq(5).all().item<bool>());
  EXPECT_TRUE(set.value(second).eq(1).all().item<bool>());
  EXPECT_EQ(set.buffer(count).scalar_type(), at::kLong);
  EXPECT_TRUE(set.buffer(count).eq(9).all().item<bool>());
  EXPECT_EQ(set.buffer(mean).scalar_type(), at::kFloat);
  EXPECT_TRUE(set.buffer(mean).eq(4).all().item<bool>());
}

TEST(ParameterSet, AClonesGradientsAreCopies) {
  ParameterSet set = small_set();
  set.allocate();
  set.gradients().fill_(3);
  ParameterSet copy = set.clone();
  EXPECT_TRUE(copy.gradients().eq(3).all().item<bool>());
  set.gradients().fill_(4);
  EXPECT_TRUE(copy.gradients().eq(3).all().item<bool>());
  EXPECT_EQ(copy.total(), set.total());
}

TEST(ParameterSet, SetsThatDifferAreToldApart) {
  const auto refusal = [](const std::vector<ParameterSpec>& parameters, const std::vector<BufferSpec>& buffers) {
    ParameterSet set = small_set(), other;
    for (const ParameterSpec& spec : parameters) other.declare(spec);
    for (const BufferSpec& spec : buffers) other.declare_buffer(spec);
    set.allocate();
    other.allocate();
    return core::message_of([&] { set.copy_from(other); });
  };
  const ParameterSpec a{"a.weight", {3, 5}, {}}, b{"b.weight", {2, 2, 3, 3}, {}}, bias{"b.bias", {2}, {}};
  const BufferSpec variance{"b.running_var", {2}, {}};
  EXPECT_EQ(refusal({a, b, bias}, {variance}), "no error");
  EXPECT_EQ(refusal({a, b}, {variance}),
            "parameter sets of different models: expected 3 parameters and 1 buffers, got 2 and 1");
  EXPECT_EQ(refusal({a, b, bias}, {}),
            "parameter sets of different models: expected 3 parameters and 1 buffers, got 3 and 0");
  EXPECT_EQ(refusal({a, b, {"c.bias", {2}, {}}}, {variance}), "parameter sets of different models: b.bias, c.bias");
  EXPECT_EQ(refusal({{"a.weight", {5, 3}, {}}, b, bias}, {variance}),
            "parameter has another shape in this set: a.weight: expected [3, 5], got [5, 3]");
  EXPECT_EQ(refusal({a, b, bias}, {{"b.running_mean", {2}, {}}}),
            "parameter sets of different models: b.running_var, b.running_mean");
  EXPECT_EQ(refusal({a, b, bias}, {{"b.running_var", {3}, {}}}),
            "buffer has another shape in this set: b.running_var: expected [2], got [3]");
}

// Executors keep packed copies of values until the version changes.
TEST(ParameterSet, WhateverWritesValuesCountsAVersion) {
  ParameterSet set = small_set(), other = small_set();
  set.allocate();
  other.allocate();
  core::MemoryState state;
  other.save(state);
  uint64_t version = set.version();
  const auto expect_next = [&](const char* call) {
    EXPECT_GT(set.version(), version) << call;
    version = set.version();
  };
  set.initialize(1);
  expect_next("initialize");
  set.set_mask(*set.find("a.weight"), first_two_columns());
  expect_next("set_mask");
  set.copy_from(other);
  expect_next("copy_from");
  set.load(state);
  expect_next("load");
}

// Whole messages of what is called too early, too late or twice.
TEST(ParameterSet, SaysWhatItRefuses) {
  const std::string order = "; make the executors that declare its parameters, then allocate(), then use it";
  ParameterSet set = small_set(), early = small_set();
  set.allocate();
  const ParameterId weight = *set.find("a.weight");
  const auto message = [](const std::function<void()>& call) { return core::message_of(call); };
  const auto before = [&](const std::string& operation, const std::function<void()>& call) {
    EXPECT_EQ(message(call), "cannot " + operation + " a parameter set before allocate()" + order);
  };
  const auto after = [&](const std::string& operation, const std::function<void()>& call) {
    EXPECT_EQ(message(call), "cannot " + operation + " a parameter set after allocate()" + order);
  };
  core::MemoryState state;
  before("initialize", [&] { early.initialize(1); });
  before("clone", [&] { static_cast<void>(early.clone()); });
  before("share values of", [&] { static_cast<void>(ParameterSet::sharing_values(early)); });
  before("look for names in", [&] { static_cast<void>(early.matching("*")); });
  before("mask values of", [&] { early.set_mask(weight, first_two_columns()); });
  before("copy into", [&] { early.copy_from(set); });
  before("copy", [&] { set.copy_from(early); });
  before("save", [&] { early.save(state); });
  before("load", [&] { early.load(state); });
  after("allocate", [&] { set.allocate(); });
  after("provide values of", [&] { set.provide(weight, at::full({3, 5}, 1.0F)); });
  after("provide buffers of", [&] { set.provide_buffer(0, at::full({2}, 1.0F)); });
  after("place the gradients of", [&] { set.place_gradients({}); });

  const std::string prefix = "; give each node, or each executor of an unallocated set, a prefix of its own";
  EXPECT_EQ(message([&] { early.declare({"b.bias", {2}, {}}); }), "a parameter is declared twice: b.bias" + prefix);
  EXPECT_EQ(message([&] {
              early.declare_buffer({"b.running_var", {2}, {}});
            }),
            "a buffer is declared twice: b.running_var" + prefix);
  EXPECT_EQ(message([&] {
              set.declare({"b.bias", {3}, {}});
            }),
            "parameter has another shape in this set: b.bias: expected [2], got [3]");
  EXPECT_EQ(message([&] {
              set.declare_buffer({"b.running_var", {1, 2}, {}});
            }),
            "buffer has another shape in this set: b.running_var: expected [2], got [1, 2]");
  EXPECT_EQ(message([&] {
              set.set_mask(weight, at::full({5, 3}, 1, at::kByte));
            }),
            "a mask has another shape in this set: a.weight: expected [3, 5], got [5, 3]");
  EXPECT_EQ(message([&] {
              set.set_mask(weight, at::full({3, 5}, 0.5));
            }),
            "a mask has numbers other than 0 and 1: a.weight; compare the numbers first: weight.abs() > 0.01");
}

}  // namespace
}  // namespace trainyard::nn::parameter_set_test
