#include "trainyard/core/system/process_end.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace trainyard::core::process_end_test {
namespace {

TEST(ProcessEndDeathTest, EndsAsTheProgramSays) {
  EXPECT_EXIT(
      {
        end_process(4);  // nobody has said how: it goes on
        install_process_end([](int code) { _exit(code); });
        end_process(3);
      },
      testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace trainyard::core::process_end_test
