// Optimizers of a part of the elements, as replicas and parameter servers have them, against one of all elements.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/step/segment_parts.h"
#include "trainyard/optim/testing/small_set.h"

namespace trainyard::optim::optimizer_part_test {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kLong = kPartElements + 5000;

// The long parameter, which comes first because it is declared last, has two parts of a table of segments.
nn::ParameterSet long_set() {
  nn::ParameterSet set({.dtype = at::kDouble});
  set.declare({.name = "short", .shape = {3, 5}, .init = nn::Initializer::normal(1.0)});
  set.declare({.name = "long", .shape = {kLong}, .init = nn::Initializer::normal(1.0)});
  set.allocate();
  set.initialize(3);
  return set;
}

std::unique_ptr<Optimizer> make(nn::ParameterSet& set) {
  return optimizers().get("torch_adam")(set, {.weight_decay = 0.02});
}

StepState state_of(int64_t step, bool found_inf = false) {
  StepState state;
  state.write({.learning_rate = 0.05, .inverse_loss_scale = 0.5, .step = step, .found_inf = found_inf});
  return state;
}

void set_gradients(nn::ParameterSet& set, int64_t step) {
  set.gradients().copy_(set.values().sub(0.25 * static_cast<double>(step)));
}

// The optimizers of [0, middle) and of the rest.
struct Pair {
  explicit Pair(nn::ParameterSet& of) : set(of), first(make(of)), second(make(of)) {
    middle = first->part_boundary(100);
    first->keep_part({.begin = 0, .end = middle}, [](int64_t, at::ScalarType) { return at::Tensor(); });
    // In memory of the caller, which may hold anything.
    second->keep_part({.begin = middle, .end = of.total()}, [this](int64_t elements, at::ScalarType type) {
      memory.push_back(at::full({elements}, 7.0, type));
      return memory.back();
    });
  }
  void step(int64_t number, bool found_inf = false) {
    set_gradients(set, number);
    for (Optimizer* optimizer : {first.get(), second.get()}) {
      optimizer->update_part(state_of(number, found_inf), {.gradients = [this](int64_t begin, int64_t) -> void* {
                                                             return set.gradients().mutable_data_ptr<double>() + begin;
                                                           },
                                                           .updated =
                                                               [this](int64_t begin, int64_t count) {
                                                                 const std::lock_guard lock(mutex);
                                                                 updated.emplace_back(begin, count);
                                                               }});
    }
    second->finish_update();
  }

  nn::ParameterSet& set;
  std::unique_ptr<Optimizer> first, second;
  int64_t middle = 0;
  std::vector<at::Tensor> memory;
  std::mutex mutex;
  std::vector<std::pair<int64_t, int64_t>> updated;
};

TEST(OptimizerPart, BoundariesAreThoseOfParts) {
  nn::ParameterSet set = long_set();
  const auto optimizer = make(set);
  const int64_t behind = set.segment(*set.find("short")).offset;
  EXPECT_EQ(optimizer->part_boundary(0), 0);
  EXPECT_EQ(optimizer->part_boundary(1), kPartElements);
  EXPECT_EQ(optimizer->part_boundary(kPartElements), kPartElements);
  EXPECT_EQ(optimizer->part_boundary(kPartElements + 1), behind);
  EXPECT_EQ(optimizer->part_boundary(behind + 1), set.total());
}

TEST(OptimizerPart, TwoUpdateTheSetAsOneDoes) {
  nn::ParameterSet whole = long_set(), divided = long_set();
  const auto all = make(whole);
  Pair pair(divided);
  ASSERT_EQ(pair.middle, kPartElements);
  ASSERT_EQ(pair.memory.size(), 2U);
  EXPECT_EQ(pair.second->slots()[1].values.data_ptr(), pair.memory[1].data_ptr());
  EXPECT_EQ(pair.first->part().end, kPartElements);
  for (int64_t step = 0; step < 4; ++step) {
    const bool found_inf = step == 2;
    set_gradients(whole, step);
    all->apply(state_of(step, found_inf));
    pair.updated.clear();
    const uint64_t version = divided.version();
    pair.step(step, found_inf);
    EXPECT_GT(divided.version(), version);
    EXPECT_TRUE(divided.values().equal(whole.values())) << step;
    // Each element once, in runs that fit into a cache; none in a skipped step.
    std::sort(pair.updated.begin(), pair.updated.end());
    int64_t elements = 0, end = 0;
    for (const auto& [begin, count] : pair.updated) {
      EXPECT_GE(begin, end);
      end = begin + count;
      EXPECT_GT(count, 0);
      EXPECT_LE(count, Optimizer::PartSteps::kMostElements);
      elements += count;
    }
    EXPECT_EQ(elements, found_inf ? 0 : kLong + 15);
    if (found_inf) continue;
    EXPECT_EQ(pair.updated.front(), std::pair(int64_t{0}, Optimizer::PartSteps::kMostElements));
  }
  for (size_t slot = 0; slot < 2; ++slot) {
    const at::Tensor values = all->slots()[slot].values;
    EXPECT_TRUE(pair.first->slots()[slot].values.equal(values.narrow(0, 0, pair.middle)));
    EXPECT_TRUE(pair.second->slots()[slot].values.equal(values.narrow(0, pair.middle, whole.total() - pair.middle)));
  }
}

TEST(OptimizerPart, SavesWholeSlotsAndLoadsItsOwn) {
  nn::ParameterSet whole = long_set(), divided = long_set(), resumed = long_set();
  const auto all = make(whole);
  Pair pair(divided);
  for (int64_t step = 0; step < 2; ++step) {
    set_gradients(whole, step);
    all->apply(state_of(step));
    pair.step(step);
  }
  core::MemoryState expected, saved;
  all->save(expected);
  std::vector<std::vector<at::Tensor>> slots;
  for (size_t slot = 0; slot < 2; ++slot) {
    slots.push_back({pair.first->slots()[slot].values, pair.second->slots()[slot].values});
  }
  pair.first->share_slots(std::move(slots));
  pair.first->save(saved);
  EXPECT_EQ(saved.names(), expected.names());
  for (const std::string& name : expected.names()) {
    EXPECT_TRUE(std::as_const(saved).tensor(name).equal(std::as_const(expected).tensor(name))) << name;
  }
  resumed.copy_from(divided);
  Pair again(resumed);
  again.first->load(saved);
  again.second->load(saved);
  set_gradients(whole, 2);
  all->apply(state_of(2));
  again.step(2);
  EXPECT_TRUE(resumed.values().equal(whole.values()));
}

// Its part does not begin with the first element, and holds its own parameter alone.
TEST(OptimizerPart, SavesItsOwnSlotsWithoutThoseOfOthers) {
  nn::ParameterSet whole = long_set(), divided = long_set(), resumed = long_set();
  const OptimizerOptions options{.weight_decay = 0.02, .parameters = {"short"}};
  const auto all = optimizers().get("torch_adam")(whole, options),
             own = optimizers().get("torch_adam")(divided, options),
             again = optimizers().get("torch_adam")(resumed, options);
  const int64_t begin = whole.segment(*whole.find("short")).offset;
  EXPECT_EQ(own->part_boundary(1), begin);
  for (Optimizer* optimizer : {own.get(), again.get()}) {
    optimizer->keep_part({.begin = begin, .end = whole.total()}, [](int64_t, at::ScalarType) { return at::Tensor(); });
    EXPECT_EQ(optimizer->slots()[1].values.numel(), whole.total() - begin);
  }
  const auto step = [](nn::ParameterSet& set, Optimizer& optimizer, int64_t number) {
    set_gradients(set, number);
    optimizer.update_part(state_of(number), {.gradients = [&set](int64_t first, int64_t) -> void* {
                                               return set.gradients().mutable_data_ptr<double>() + first;
                                             },
                                             .updated = [](int64_t, int64_t) {}});
    optimizer.finish_update();
  };
  core::MemoryState expected, saved;
  for (int64_t number = 0; number < 3; ++number) {
    if (number == 2) {
      all->save(expected);
      own->save(saved);
      resumed.copy_from(divided);
      again->load(saved);
    }
    set_gradients(whole, number);
    all->apply(state_of(number));
    step(divided, *own, number);
    EXPECT_TRUE(divided.values().equal(whole.values())) << number;
  }
  EXPECT_THAT(saved.names(), ElementsAre("short.mean", "short.mean_square", "short.update_count"));
  for (const std::string& name : saved.names()) {
    EXPECT_TRUE(std::as_const(saved).tensor(name).equal(std::as_const(expected).tensor(name))) << name;
  }
  step(resumed, *again, 2);
  EXPECT_TRUE(resumed.values().equal(whole.values()));
}

TEST(OptimizerPart, RefusesWhatNeedsAllElements) {
  nn::ParameterSet set = small_set();
  const auto refused = [&](const std::string& name, const OptimizerOptions& options) {
    const auto optimizer = optimizers().get(name)(set, options);
    return core::message_of(
        [&] { optimizer->keep_part({.begin = 0, .end = 24}, [](int64_t, at::ScalarType) { return at::Tensor(); }); },
        core::ErrorCode::kUnsupported);
  };
  const std::string problem = "an optimizer cannot update a part of the parameters: ",
                    remedy = "; let it update all of them";
  EXPECT_EQ(refused("lars", {}), problem + "its updates are scaled by norms of parameters" + remedy);
  EXPECT_EQ(refused("sgd", {.norm_clip = NormClip{.bound = 1}}), problem + "gradients are clipped by norm" + remedy);
  EXPECT_EQ(refused("sgd", {.lookahead = Lookahead{}}),
            problem + "Lookahead moves its weights after some updates" + remedy);
  EXPECT_EQ(refused("sgd", {.delayed = true}), problem + "gradients are applied one update later" + remedy);
  EXPECT_EQ(refused("muon_sgd", {}), problem + "it makes the updates of whole matrices orthogonal" + remedy);

  const auto optimizer = optimizers().get("sgd")(set, {});
  optimizer->keep_part({.begin = 0, .end = 24}, [](int64_t, at::ScalarType) { return at::Tensor(); });
  EXPECT_EQ(core::message_of([&] { optimizer->apply(state_of(0)); }, core::ErrorCode::kInternal),
            "an optimizer of a part cannot update all parameters: use update_part()");
}

TEST(OptimizerPart, ForeignGradientsSayTheirForm) {
  nn::ParameterSet set = small_set();
  const auto optimizer = optimizers().get("sgd")(set, {});
  const std::string elements = std::to_string(set.total());
  EXPECT_EQ(core::message_of([&] { optimizer->apply(state_of(0), at::full({3}, 1.0, at::kFloat)); }),
            "gradients have another form than the parameters: expected " + elements + " x Double, got 3 x Float");
}

TEST(OptimizerOptionsValidate, SaysWhichNumberIsNotUsable) {
  const auto message = [](const OptimizerOptions& options) { return core::message_of([&] { options.validate(); }); };
  const std::string least = " is not usable: expected a finite number, at least 0, got ";
  EXPECT_EQ(message({.weight_decay = -0.5}), "weight decay" + least + "-0.5");
  EXPECT_EQ(message({.gradient_clip = 0.0}), "gradient clip is not usable: expected a number above 0, got 0");
  EXPECT_EQ(message({.norm_clip = NormClip{.bound = -1}}),
            "the bound of clipping by norm is not usable: expected a finite number above 0, got -1");
  EXPECT_EQ(message({.groups = {ParameterGroup{.pattern = "a.*", .rate_factor = -1}}}),
            "the rate factor of the group 'a.*'" + least + "-1");
  EXPECT_EQ(message({.groups = {ParameterGroup{.pattern = "a.*", .weight_decay = -0.25}}}),
            "the weight decay of the group 'a.*'" + least + "-0.25");
  EXPECT_EQ(message({.groups = {ParameterGroup{.pattern = "a.*", .rate_factor = 0, .weight_decay = 0.0}}}), "no error");
  for (const double decay : {0.0, 1.25}) {
    EXPECT_EQ(message({.layer_decay = decay}),
              "layer decay is not usable: expected a number above 0 and at most 1, got " +
                  std::string(decay == 0 ? "0" : "1.25"));
  }
  EXPECT_EQ(message({.layer_decay = 1}), "no error");
  const auto terms = [&](const std::vector<std::string>& names, double coefficient) {
    OptimizerOptions options;
    for (const std::string& name : names) {
      options.regularization.push_back({.name = name, .pattern = "*", .coefficient = coefficient});
    }
    return message(options);
  };
  EXPECT_EQ(terms({"one", "two"}, 0), "no error");
  EXPECT_EQ(terms({"one"}, -2), "the coefficient of the term 'one'" + least + "-2");
  const std::string own = "terms of the loss need names of their own: the regularization of an optimizer: got ";
  EXPECT_EQ(terms({"one", "two", "one"}, 1), own + "'one' again");
  EXPECT_EQ(terms({"weight_decay"}, 1), own + "'weight_decay' again");
  EXPECT_EQ(terms({""}, 1), own + "'' again");
}

// Where a number of an optimizer may lie, and what its error says.
TEST(OptimizerNumberRanges, EndWhereTheyAreDeclared) {
  const auto refused = [](const OptimizerNumber& number, double value) {
    return core::message_of([&] { return complete_numbers({number}, {{number.name, value}}); });
  };
  const auto expected = [](const char* range, const char* value) {
    return std::string("n is not usable: expected ") + range + ", got " + value;
  };
  const OptimizerNumber unit{.name = "n"}, below_one{.name = "n", .range = NumberRange::kBelowOne},
      open{.name = "n", .default_value = 0.5, .range = NumberRange::kOpenUnit},
      positive{.name = "n", .default_value = 1, .range = NumberRange::kPositive},
      toggle{.name = "n", .range = NumberRange::kSwitch},
      count{.name = "n", .default_value = 5, .range = NumberRange::kCount},
      choice{.name = "n", .range = NumberRange::kChoice, .choices = {"one", "two"}};
  for (const auto& [number, value] : std::vector<std::pair<const OptimizerNumber*, double>>{{&unit, 0},
                                                                                            {&unit, 1},
                                                                                            {&below_one, 0},
                                                                                            {&open, 0.999},
                                                                                            {&positive, 1e-300},
                                                                                            {&toggle, 1},
                                                                                            {&toggle, 0},
                                                                                            {&count, 1},
                                                                                            {&count, 99},
                                                                                            {&choice, 0},
                                                                                            {&choice, 1}}) {
    EXPECT_EQ(complete_numbers({*number}, {{"n", value}}).at("n"), value);
  }
  EXPECT_EQ(refused(unit, 1.5), expected("a number in [0, 1]", "1.5"));
  EXPECT_EQ(refused(unit, -0.5), expected("a number in [0, 1]", "-0.5"));
  EXPECT_EQ(refused(below_one, 1), expected("a number in [0, 1)", "1"));
  EXPECT_EQ(refused(open, 0), expected("a number in (0, 1)", "0"));
  EXPECT_EQ(refused(open, 1), expected("a number in (0, 1)", "1"));
  EXPECT_EQ(refused(positive, 0), expected("a finite number above 0", "0"));
  EXPECT_EQ(refused(toggle, 2), expected("0 or 1", "2"));
  EXPECT_EQ(refused(count, 0), expected("a whole number from 1 to 99", "0"));
  EXPECT_EQ(refused(count, 100), expected("a whole number from 1 to 99", "100"));
  EXPECT_EQ(refused(count, 2.5), expected("a whole number from 1 to 99", "2.5"));
  EXPECT_EQ(refused(choice, 2), expected("the index of one of one, two", "2"));
  EXPECT_EQ(refused(choice, 0.5), expected("the index of one of one, two", "0.5"));
  EXPECT_EQ(refused(choice, -1), expected("the index of one of one, two", "-1"));
}

TEST(LookaheadOptions, AreCheckedEach) {
  const auto refused = [](const Lookahead& lookahead) { return core::message_of([&] { lookahead.validate(); }); };
  EXPECT_EQ(refused({.steps = 1, .alpha = 1, .final_alpha = 1, .updates = 1}), "no error");
  EXPECT_EQ(refused({.steps = 0}), "the number of steps of Lookahead is not usable: expected at least 1, got 0");
  EXPECT_EQ(refused({.alpha = 0}), "alpha of Lookahead is not usable: expected a number in (0, 1], got 0");
  EXPECT_EQ(refused({.alpha = 1.5}), "alpha of Lookahead is not usable: expected a number in (0, 1], got 1.5");
  EXPECT_EQ(refused({.final_alpha = 0, .updates = 1}),
            "the last alpha of Lookahead is not usable: expected a number in (0, 1], got 0");
  EXPECT_EQ(refused({.final_alpha = 1.5, .updates = 1}),
            "the last alpha of Lookahead is not usable: expected a number in (0, 1], got 1.5");
  EXPECT_EQ(refused({.final_alpha = 1, .updates = 0}),
            "the number of updates over which alpha of Lookahead changes is not usable: expected at least 1, got 0");
  const Lookahead rising{.alpha = 0.25, .final_alpha = 0.75, .updates = 10};
  EXPECT_EQ(rising.alpha_at(0), 0.25);
  EXPECT_DOUBLE_EQ(rising.alpha_at(5), 0.25 + 0.5 / 8);
  EXPECT_EQ(rising.alpha_at(10), 0.75);
  EXPECT_EQ(rising.alpha_at(20), 0.75);
  EXPECT_THAT((std::vector{Lookahead{.alpha = 0.25}.alpha_at(0), Lookahead{.alpha = 0.25}.alpha_at(99)}),
              ElementsAre(0.25, 0.25));
}

}  // namespace
}  // namespace trainyard::optim::optimizer_part_test
