#include "trainyard/core/base/scoped_state.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"

namespace trainyard::core::scoped_state_test {
namespace {

TEST(ScopedState, NamesLieBehindThePrefix) {
  MemoryState state;
  state.integer("step", 1);
  ScopedWriter writer(state, "optimizer/");
  writer.integer("step", 2);
  writer.real("rate", 0.5);
  writer.text("kind", "sgd");
  ScopedWriter(writer, "slots/").tensor("w", at::full({2}, 3.0));
  EXPECT_EQ(state.names(), (std::vector<std::string>{"optimizer/kind", "optimizer/rate", "optimizer/slots/w",
                                                     "optimizer/step", "step"}));

  const ScopedReader reader(state, "optimizer/");
  EXPECT_EQ(reader.names(), (std::vector<std::string>{"kind", "rate", "slots/w", "step"}));
  EXPECT_EQ(reader.names("s"), (std::vector<std::string>{"slots/w", "step"}));
  EXPECT_TRUE(reader.has("rate"));
  EXPECT_FALSE(reader.has("optimizer/rate"));
  EXPECT_EQ(reader.integer("step"), 2);
  EXPECT_EQ(reader.real("rate"), 0.5);
  EXPECT_EQ(reader.text("kind"), "sgd");
  at::Tensor read = at::zeros({2});
  ScopedReader(reader, "slots/").tensor("w", read);
  EXPECT_TRUE(read.equal(at::full({2}, 3.0)));
  EXPECT_TRUE(reader.tensor("slots/w").equal(read));
}

TEST(ScopedState, CopiesEntriesOfEveryKindBehindThePrefix) {
  MemoryState state, copy;
  ScopedWriter writer(state, "of/");
  writer.integer("integer", 2);
  writer.real("real", 0.5);
  writer.text("text", "sgd");
  writer.tensor("tensor", at::full({2}, 3.0));
  const ScopedReader reader(state, "of/");
  for (const std::string& name : reader.names()) reader.copy(name, copy, "kept/" + name);
  EXPECT_EQ(copy.names(), (std::vector<std::string>{"kept/integer", "kept/real", "kept/tensor", "kept/text"}));
  EXPECT_EQ(copy.integer("kept/integer"), 2);
  EXPECT_EQ(copy.real("kept/real"), 0.5);
  EXPECT_EQ(copy.text("kept/text"), "sgd");
  EXPECT_TRUE(copy.tensor("kept/tensor").equal(at::full({2}, 3.0)));
  EXPECT_THROW(reader.copy("lost", copy, "lost"), Error);
}

TEST(MemoryState, RefusesWhatIsNotThere) {
  MemoryState state;
  state.integer("step", 1);
  EXPECT_THROW(state.integer("step", 2), Error);
  EXPECT_THROW(state.real("step"), Error);
  EXPECT_THROW(state.integer("stop"), Error);
  state.tensor("w", at::zeros({2}));
  at::Tensor other = at::zeros({3});
  const StateReader& reader = state;
  EXPECT_THROW(reader.tensor("w", other), Error);
}

}  // namespace
}  // namespace trainyard::core::scoped_state_test
