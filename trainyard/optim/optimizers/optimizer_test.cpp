// Optimizers against their definition in double precision, element by element, and against closed forms.
#include "trainyard/optim/optimizers/optimizer.h"

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/optim/optimizers/formula_optimizer.h"
#include "trainyard/optim/optimizers/regularization_loss.h"
#include "trainyard/optim/testing/numbers.h"

namespace trainyard::optim::optimizer_test {
namespace {

// Whose definition and closed form stand here; those of the others are elsewhere (golden_steps_test.cpp).
const std::vector<std::string> kNames = {"sgd", "tf_momentum", "tf_nesterov"};

// Odd sizes, so that gaps lie between segments and vector loops have remainders.
nn::ParameterSet make_set(at::ScalarType dtype, int64_t rows = 3) {
  nn::ParameterSet set({.dtype = dtype});
  set.declare({.name = "a.weight", .shape = {3, 11}, .init = nn::Initializer::normal(1.0)});
  set.declare({.name = "a.bias", .shape = {7}, .init = nn::Initializer::normal(1.0), .decay = false});
  set.declare({.name = "b.weight", .shape = {1}, .init = nn::Initializer::normal(1.0)});
  set.declare({.name = "c.weight", .shape = {rows, 401}, .init = nn::Initializer::normal(1.0)});
  set.allocate();
  set.initialize(17);
  return set;
}

std::vector<double> to_doubles(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kDouble).contiguous().cpu();
  const auto* data = values.const_data_ptr<double>();
  return {data, data + values.numel()};
}

std::vector<char> bytes_of(const at::Tensor& tensor) {
  std::vector<char> bytes(tensor.nbytes());
  std::memcpy(bytes.data(), tensor.const_data_ptr(), bytes.size());
  return bytes;
}

void fill_gradients(nn::ParameterSet& set, double value) {
  set.gradients().fill_(value);
}

// The definition in the header of optimizer.h, in double.
struct Definition {
  std::string name;
  OptimizerOptions options;
  double momentum = 0.8;
  double factor = 1.0;
  double w = 0, v = 0;

  void step(double gradient, double lr, double inverse_scale, bool decay) {
    double g = gradient * inverse_scale + (decay ? options.weight_decay * factor * w : 0.0);
    if (options.gradient_clip) g = std::fmax(-*options.gradient_clip, std::fmin(*options.gradient_clip, g));
    v = momentum * v + g;
    if (name == "sgd") w -= lr * g;
    if (name == "tf_momentum") w -= lr * v;
    if (name == "tf_nesterov") w -= lr * (g + momentum * v);
  }
};

class OptimizerTest : public testing::TestWithParam<std::tuple<std::string, at::ScalarType>> {};
class OptimizerDefinitionTest : public OptimizerTest {};

// 1,000 steps down a bowl whose middle moves, with everything switched on.
TEST_P(OptimizerDefinitionTest, IsFollowedFor1000Steps) {
  const auto& [name, dtype] = GetParam();
  const OptimizerOptions options{
      .numbers = numbers_of(name, {{"momentum", 0.8}}), .weight_decay = 0.01, .gradient_clip = 0.75};
  nn::ParameterSet set = make_set(dtype);
  auto optimizer = optimizers().get(name)(set, options);
  optimizer->set_weight_decay_factor(2.0);

  std::vector<Definition> elements;
  std::vector<bool> decays;
  std::vector<int64_t> offsets;
  const std::vector<double> initial = to_doubles(set.values());
  for (const nn::Segment& segment : set.segments()) {
    for (int64_t i = 0; i < std::min<int64_t>(segment.count, 40); ++i) {
      elements.push_back({.name = name, .options = options, .factor = 2.0, .w = initial[segment.offset + i]});
      decays.push_back(segment.spec.decay);
      offsets.push_back(segment.offset + i);
    }
  }

  StepState state;
  for (int64_t step = 0; step < 1000; ++step) {
    const double middle = std::sin(0.05 * static_cast<double>(step));
    const double lr = 0.05 / (1.0 + 0.001 * static_cast<double>(step));
    state.write({.learning_rate = lr, .inverse_loss_scale = 1.0 / 8, .step = step});
    set.gradients().copy_(set.values().sub(middle).mul(8.0));
    optimizer->apply(state);
    for (size_t i = 0; i < elements.size(); ++i) {
      elements[i].step((elements[i].w - middle) * 8.0, lr, 1.0 / 8, decays[i]);
    }
  }
  const std::vector<double> result = to_doubles(set.values());
  const double tolerance = dtype == at::kDouble ? 1e-12 : 2e-6;
  for (size_t i = 0; i < elements.size(); ++i) {
    ASSERT_NEAR(result[static_cast<size_t>(offsets[i])], elements[i].w, tolerance) << i;
  }
}

class OptimizerClosedFormTest : public testing::TestWithParam<std::string> {};

// f(w) = a / 2 * (w - w*)^2: the error follows e[n+2] = T e[n+1] - D e[n], T and D the trace and the determinant of the
// update as a matrix on (v, e); its solution is a sum of two powers.
TEST_P(OptimizerClosedFormTest, MeetsTheClosedFormOnAQuadratic) {
  const std::string name = GetParam();
  const double a = 2.0, target = 3.0, lr = 0.05, m = name == "sgd" ? 0.0 : 0.9;
  const double first = name == "tf_nesterov" ? 1 - lr * a * (1 + m) : 1 - lr * a;  // e[1] / e[0]
  const double trace = name == "sgd" ? 1 - lr * a : name == "tf_momentum" ? 1 + m - lr * a : 1 + m - lr * a * (1 + m);
  const double determinant = name == "sgd" ? 0 : name == "tf_momentum" ? m : m * (1 - lr * a);
  const std::complex<double> root = std::sqrt(std::complex<double>(trace * trace / 4 - determinant));
  const std::complex<double> r1 = trace / 2 + root, r2 = trace / 2 - root;
  const std::complex<double> c1 = (first - r2) / (r1 - r2), c2 = 1.0 - c1;

  nn::ParameterSet set({.dtype = at::kDouble});
  set.declare({.name = "w", .shape = {1}, .init = nn::Initializer::constant(10.0)});
  set.allocate();
  set.initialize(0);
  auto optimizer = optimizers().get(name)(set, {.numbers = numbers_of(name, {{"momentum", m}})});
  StepState state;
  for (int n = 1; n <= 100; ++n) {
    state.write({.learning_rate = lr, .step = n});
    set.gradients().copy_(set.values().sub(target).mul(a));
    optimizer->apply(state);
    const double error = 7.0 * (c1 * std::pow(r1, n) + c2 * std::pow(r2, n)).real();
    ASSERT_NEAR(to_doubles(set.values())[0], target + error, 1e-11) << n;
  }
}

TEST_P(OptimizerTest, ASkippedStepLeavesAllBits) {
  const auto& [name, dtype] = GetParam();
  nn::ParameterSet set = make_set(dtype);
  auto optimizer = optimizers().get(name)(set, {.weight_decay = 0.1});
  StepState state;
  state.write({.learning_rate = 0.1});
  fill_gradients(set, 0.5);
  optimizer->apply(state);

  const auto bits = [&] {
    std::vector<std::vector<char>> all = {bytes_of(set.values())};
    for (const auto& slot : optimizer->slots()) all.push_back(bytes_of(slot.values));
    if (optimizer->update_count().defined()) all.push_back(bytes_of(optimizer->update_count()));
    return all;
  };
  const auto before = bits();
  for (const double gradient : {1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    fill_gradients(set, gradient);
    state.write({.learning_rate = 0.1, .found_inf = true});
    optimizer->apply(state);
    EXPECT_EQ(bits(), before) << gradient;
    // What the safeguard is for: the same step without it. Lion takes the sign of infinity, and keeps it in its slot.
    if (std::isfinite(gradient)) continue;
    nn::ParameterSet unguarded = set.clone();
    auto careless = optimizers().get(name)(unguarded, {.weight_decay = 0.1});
    state.write({.learning_rate = 0.1, .found_inf = false});
    careless->apply(state);
    bool finite = std::isfinite(to_doubles(unguarded.values())[0]);
    for (const auto& slot : careless->slots()) finite = finite && std::isfinite(to_doubles(slot.values)[0]);
    EXPECT_FALSE(finite);
  }
}

TEST_P(OptimizerTest, HasTheSameBitsOnAnyNumberOfThreads) {
  const auto& [name, dtype] = GetParam();
  std::vector<std::vector<char>> results;
  std::vector<double> regularization_losses;
  const int threads_before = at::get_num_threads();
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    nn::ParameterSet set = make_set(dtype, 1003);
    auto optimizer = optimizers().get(name)(
        set, {.weight_decay = 0.01,
              .regularization = {
                  {.name = "sparse", .pattern = "*.weight", .kind = RegularizationKind::kL1, .coefficient = 0.02}}});
    StepState state;
    for (int step = 0; step < 5; ++step) {
      state.write({.learning_rate = 0.3, .inverse_loss_scale = 0.7, .step = step});
      set.gradients().copy_(set.values().cos());
      optimizer->apply(state);
    }
    results.push_back(bytes_of(set.values()));
    regularization_losses.push_back(RegularizationLoss(*optimizer)().item<double>());
  }
  at::set_num_threads(threads_before);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(regularization_losses[0], regularization_losses[1]);
  EXPECT_EQ(regularization_losses[0], regularization_losses[2]);
}

TEST_P(OptimizerTest, ContinuesFromItsSavedSlots) {
  const auto& [name, dtype] = GetParam();
  nn::ParameterSet set = make_set(dtype), other = make_set(dtype);
  auto optimizer = optimizers().get(name)(set, {});
  StepState state;
  const auto step = [&](nn::ParameterSet& parameters, Optimizer& with) {
    state.write({.learning_rate = 0.1});
    parameters.gradients().copy_(parameters.values().sin());
    with.apply(state);
  };
  for (int i = 0; i < 3; ++i) step(set, *optimizer);

  core::MemoryState saved;
  optimizer->save(saved);
  std::set<std::string> names;
  for (const auto& slot : optimizer->slots()) {
    for (const nn::Segment& segment : set.segments()) names.insert(segment.spec.name + "." + slot.name);
    EXPECT_EQ(saved.tensor("a.weight." + slot.name).sizes(), (at::IntArrayRef{3, 11}));
  }
  if (optimizer->update_count().defined()) names.insert("c.weight.update_count");
  EXPECT_EQ(saved.names(), std::vector<std::string>(names.begin(), names.end()));
  other.copy_from(set);
  auto resumed = optimizers().get(name)(other, {});
  resumed->load(saved);
  for (int i = 0; i < 3; ++i) {
    step(set, *optimizer);
    step(other, *resumed);
  }
  EXPECT_EQ(bytes_of(set.values()), bytes_of(other.values()));
}

TEST_P(OptimizerTest, SaysThatValuesChangedAndKeepsGapsZero) {
  const auto& [name, dtype] = GetParam();
  nn::ParameterSet set = make_set(dtype);
  auto optimizer = optimizers().get(name)(set, {});
  const uint64_t version = set.version();
  fill_gradients(set, 1.0);
  StepState state;
  state.write({.learning_rate = 0.1});
  optimizer->apply(state);
  EXPECT_GT(set.version(), version);
  std::vector<bool> used(static_cast<size_t>(set.total()), false);
  for (const nn::Segment& segment : set.segments()) {
    for (int64_t i = 0; i < segment.count; ++i) used[static_cast<size_t>(segment.offset + i)] = true;
  }
  const std::vector<double> values = to_doubles(set.values());
  for (size_t i = 0; i < used.size(); ++i) {
    ASSERT_TRUE(used[i] || values[i] == 0.0) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerClosedFormTest, testing::ValuesIn(kNames),
                         [](const auto& tested) { return tested.param; });
std::string title_of(const testing::TestParamInfo<std::tuple<std::string, at::ScalarType>>& tested) {
  return std::get<0>(tested.param) + "_" + at::toString(std::get<1>(tested.param));
}
const auto kTypes = testing::Values(at::kFloat, at::kDouble);
INSTANTIATE_TEST_SUITE_P(All, OptimizerDefinitionTest, testing::Combine(testing::ValuesIn(kNames), kTypes), title_of);
INSTANTIATE_TEST_SUITE_P(All, OptimizerTest, testing::Combine(testing::ValuesIn(optimizers().names()), kTypes),
                         title_of);

TEST(Optimizers, UnknownNameSuggestsTheNearest) {
  try {
    optimizers().get("tf_nestorov");
    FAIL();
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::ErrorCode::kNotFound);
    EXPECT_NE(std::string(error.what()).find("nesterov"), std::string::npos) << error.what();
  }
}

TEST(Optimizers, NamesOfEarlierVersionsStillWork) {
  const std::map<std::string, std::string> names = {{"momentum", "tf_momentum"}, {"nesterov", "tf_nesterov"},
                                                    {"rmsprop", "tf_rmsprop"},   {"adam", "tf_adam"},
                                                    {"adamw", "torch_adamw"},    {"nadam", "torch_nadam"}};
  for (const auto& [former, now] : names) {
    EXPECT_TRUE(optimizers().has(former));
    EXPECT_EQ(&optimizers().get(former), &optimizers().get(now)) << former;
  }
}

TEST(Optimizers, RefusesWhatItCannotDo) {
  nn::ParameterSet set = make_set(at::kFloat);
  const auto& sgd = optimizers().get("sgd");
  EXPECT_EQ(core::code_of([&] {
              optimizers().get("tf_momentum")(set, {.numbers = {{"momentum", 1.5}}});
            }),
            core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(core::message_of(
                  [&] {
                    sgd(set, {.numbers = {{"momentum", 0.5}}});
                  },
                  core::ErrorCode::kNotFound),
              testing::HasSubstr("unknown number of the optimizer 'momentum'"));
  EXPECT_THAT(core::message_of(
                  [&] {
                    optimizers().get("torch_adam")(set, {.numbers = {{"beta", 0.5}}});
                  },
                  core::ErrorCode::kNotFound),
              testing::HasSubstr("did you mean 'beta1'"));
  EXPECT_THAT(core::message_of([&] {
                optimizers().get("lamb")(set, {.numbers = {{"bias_correction", 0.5}}});
              }),
              testing::HasSubstr("0 or 1"));
  EXPECT_THROW(sgd(set, {.weight_decay = -1}), core::Error);
  EXPECT_THROW(sgd(set, {.weight_decay = std::nan("")}), core::Error);
  EXPECT_THROW(sgd(set, {.gradient_clip = 0.0}), core::Error);
  nn::ParameterSet empty, half({.dtype = at::kHalf});
  EXPECT_EQ(core::message_of([&] { sgd(empty, {}); }), "an optimizer needs a parameter set that is allocated");
  half.declare({.name = "w", .shape = {2}});
  half.allocate();
  EXPECT_EQ(core::message_of([&] { sgd(half, {}); }, core::ErrorCode::kUnsupported),
            "optimizers work on float and double parameters: got Half");
}

TEST(Optimizers, TellTheNumbersThatTheyHave) {
  nn::ParameterSet set = make_set(at::kFloat);
  const std::string unknown =
      "unknown number of the optimizer 'beta'; did you mean 'beta1'? known: beta1, beta2, epsilon";
  const auto adam = optimizers().get("torch_adam")(set, {.numbers = {{"beta2", 0.5}}});
  EXPECT_EQ(core::message_of([&] { return adam->number("beta"); }, core::ErrorCode::kNotFound), unknown);
  EXPECT_EQ(core::message_of(
                [&] {
                  optimizers().get("torch_adam")(set, {.numbers = {{"beta", 0.5}}});
                },
                core::ErrorCode::kNotFound),
            unknown);
  EXPECT_EQ(adam->number("beta1"), 0.9);
  EXPECT_EQ(adam->number("beta2"), 0.5);
  EXPECT_EQ(adam->options().numbers, (OptimizerNumbers{{"beta1", 0.9}, {"beta2", 0.5}, {"epsilon", 1e-7}}));
}

TEST(Optimizers, ScaleParametersWithoutDecayByNormsOnlyWhereTheyAreTold) {
  nn::ParameterSet set = make_set(at::kFloat);
  for (const char* name : {"lars", "lamb", "sgd"}) {
    const auto plain = optimizers().get(name)(set, {}),
               told = optimizers().get(name)(set, {.numbers = numbers_of(name, {{"adapt_undecayed", 1}})});
    const bool can = std::string(name) != "sgd";
    EXPECT_FALSE(plain->adapts_undecayed()) << name;
    EXPECT_EQ(told->adapts_undecayed(), can) << name;
    for (size_t i = 0; i < set.segments().size(); ++i) {
      const bool decays = set.segments()[i].spec.name != "a.bias";
      EXPECT_EQ(plain->adapts(i), decays) << name << " " << i;
      EXPECT_EQ(told->adapts(i), decays || can) << name << " " << i;
    }
  }
}

// A class of a program's own, which has no declaration and overrides as little as it may.
class OwnOptimizer : public Optimizer {
 public:
  explicit OwnOptimizer(nn::ParameterSet& parameters) : Optimizer(parameters, OptimizerOptions{}) {}

 private:
  void update(const StepState& /*state*/, const at::Tensor& /*gradients*/) override {}
};

TEST(Optimizers, HaveTheNamesOfTheirDeclarations) {
  nn::ParameterSet set = make_set(at::kFloat);
  for (const std::string& name : optimizers().names()) {
    const auto optimizer = optimizers().get(name)(set, {});
    EXPECT_EQ(declared_name(*optimizer), name);
    EXPECT_EQ(optimizer->has_result(), name.starts_with("schedule_free_")) << name;
  }
  OwnOptimizer own(set);
  EXPECT_EQ(declared_name(own), "");
  EXPECT_FALSE(own.has_result());
  EXPECT_EQ(own.part_obstacle(), "it is no formula of a single element");
  EXPECT_EQ(core::message_of([&] { own.update_part(StepState(), {}); }, core::ErrorCode::kInternal),
            "an optimizer that can update parts does not override update_own_part()");
}

TEST(Optimizers, OfNoParametersHaveNothingToSave) {
  nn::ParameterSet set;
  set.allocate();
  const auto optimizer = optimizers().get("torch_adam")(set, {.lookahead = Lookahead{}});
  EXPECT_TRUE(optimizer->own().empty());
  core::MemoryState saved;
  optimizer->save(saved);
  EXPECT_TRUE(saved.names().empty());
  EXPECT_EQ(core::message_of([&] { optimizer->load(saved); }), "no error");
}

// Of weights y, before the first update and then by the slot z: y + (1 - 1 / beta) (z - y). With a rate of 0 z is the
// weights.
TEST(ScheduleFreeResult, IsYUntilThereIsZ) {
  for (const auto& [name, beta] :
       {std::pair{"schedule_free_sgd", "momentum"}, std::pair{"schedule_free_adamw", "beta1"}}) {
    nn::ParameterSet set = make_set(at::kDouble);
    const auto optimizer = optimizers().get(name)(set, {.numbers = {{beta, 0.8}}, .parameters = {"*.weight"}});
    const at::Tensor start = set.values().clone(), other = start.add(1);
    at::Tensor values = other.clone();
    optimizer->result(values);
    EXPECT_TRUE(values.equal(other)) << name;
    StepState state;
    state.write({.learning_rate = 0});
    fill_gradients(set, 1);
    optimizer->apply(state);
    EXPECT_TRUE(set.values().equal(start)) << name;
    optimizer->result(values);
    for (const nn::Segment& segment : set.segments()) {
      const double expected = segment.spec.name == "a.bias" ? 1 : 1 / 0.8;  // the bias is another optimizer's
      const at::Tensor moved = values.sub(start).narrow(0, segment.offset, segment.count);
      EXPECT_NEAR(moved.min().item<double>(), expected, 1e-14) << name << " " << segment.spec.name;
      EXPECT_NEAR(moved.max().item<double>(), expected, 1e-14) << name << " " << segment.spec.name;
    }
  }
}

}  // namespace
}  // namespace trainyard::optim::optimizer_test
