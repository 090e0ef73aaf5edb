#include "trainyard/core/system/host_name.h"

#include <gtest/gtest.h>
#include <sys/utsname.h>

namespace trainyard::core::host_name_test {
namespace {

TEST(HostName, IsTheNodeOfUname) {
  utsname names{};
  ASSERT_EQ(::uname(&names), 0);
  EXPECT_EQ(host_name(), names.nodename);
}

}  // namespace
}  // namespace trainyard::core::host_name_test
