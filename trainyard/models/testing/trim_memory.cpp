// Gives freed memory back after each test of this program. Its tests share processes, each network's memory is of
// another size, and the caching allocator would keep all of it: 13 GiB after a third of the zoo.
#include <gtest/gtest.h>

#include "trainyard/core/memory/cpu_allocator.h"

namespace trainyard::models {
namespace {

class TrimMemory : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo& /*test*/) override { core::trim_cpu_allocator(); }
};

const bool kListens = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new TrimMemory);  // GoogleTest owns it
  return true;
}();

}  // namespace
}  // namespace trainyard::models
