// What a process does that a test or a script has started from this test program. It is a test only in that process:
//
//   void do_task(const std::string& task) { ... }
//   const bool registered = core::add_helper_task("TRAINYARD_MY_TASK", "MyTask.InAProcess", do_task);
//
// Where the environment variable is set, the program has the test "MyTask.InAProcess", to be named in --gtest_filter,
// and the function gets the variable's value. Elsewhere there is no such test, so that nothing is counted that asserts
// nothing.
#pragma once

#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace trainyard::core {

// `name` is a suite, a dot and a case. Returns true where the test was added.
inline bool add_helper_task(const char* variable, const std::string& name,
                            std::function<void(const std::string&)> work) {
  class Task : public ::testing::Test {
   public:
    Task(std::function<void(const std::string&)> work, std::string value)
        : work_(std::move(work)), value_(std::move(value)) {}
    void TestBody() override { work_(value_); }

   private:
    std::function<void(const std::string&)> work_;
    std::string value_;
  };
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return false;
  const size_t dot = name.find('.');
  ::testing::RegisterTest(
      name.substr(0, dot).c_str(), name.substr(dot + 1).c_str(), nullptr, nullptr, __FILE__, __LINE__,
      [work = std::move(work), text = std::string(value)]() -> ::testing::Test* { return new Task(work, text); });
  return true;
}

}  // namespace trainyard::core
