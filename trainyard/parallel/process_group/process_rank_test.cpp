#include "trainyard/parallel/process_group/process_rank.h"

#include <cstdlib>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::process_rank_test {
namespace {

using core::Error;
using core::ErrorCode;
using core::thrown_by;

ReadVariable variables(std::map<std::string, std::string> all) {
  return [all = std::move(all)](const std::string& name) -> std::optional<std::string> {
    const auto found = all.find(name);
    return found == all.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(ProcessRank, IsWhatTheVariablesSay) {
  const std::map<std::string, std::string> good = {
      {"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
  const ProcessRank process = read_process_rank(variables(good));
  EXPECT_EQ(process.rank, 5);
  EXPECT_EQ(process.size, 8);
  EXPECT_EQ(process.local_rank, 1);
  EXPECT_EQ(process.master_address, "node1");
  EXPECT_EQ(process.master_port, 29500);
  EXPECT_FALSE(process.served_by_launcher);
  auto changed = good;
  changed["LOCAL_RANK"] = "0";
  EXPECT_EQ(read_process_rank(variables(changed)).local_rank, 0) << "the first one of its machine";
  changed.erase("LOCAL_RANK");
  EXPECT_EQ(read_process_rank(variables(changed)).local_rank, 5);
  changed["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_TRUE(read_process_rank(variables(changed)).served_by_launcher);
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    changed = good;
    changed.erase(name);
    const Error error = thrown_by([&] { read_process_rank(variables(changed)); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(says(error, std::string("variable ") + name)) << error.what();
  }
  const std::vector<std::pair<std::string, std::string>> bad = {{"RANK", "8"},
                                                                {"RANK", "-1"},
                                                                {"RANK", "1x"},
                                                                {"WORLD_SIZE", "0"},
                                                                {"WORLD_SIZE", "99999999999999999999"},
                                                                {"MASTER_PORT", "0"},
                                                                {"MASTER_PORT", "65536"},
                                                                {"LOCAL_RANK", "6"}};
  for (const auto& [name, value] : bad) {
    changed = good;
    changed[name] = value;
    EXPECT_TRUE(says(thrown_by([&] { read_process_rank(variables(changed)); }), name)) << value;
  }
}

TEST(ProcessRank, IsReadFromTheEnvironment) {
  ASSERT_EQ(::setenv("TRAINYARD_TEST_OF_RANKS", "7", 1), 0);
  EXPECT_EQ(read_environment("TRAINYARD_TEST_OF_RANKS"), "7");
  ASSERT_EQ(::unsetenv("TRAINYARD_TEST_OF_RANKS"), 0);
  EXPECT_EQ(read_environment("TRAINYARD_TEST_OF_RANKS"), std::nullopt);
}

TEST(ProcessRank, TellsWhichNumbersThereMayBe) {
  const std::map<std::string, std::string> good = {
      {"RANK", "7"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "7"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "65535"}};
  const ProcessRank largest = read_process_rank(variables(good));
  EXPECT_EQ(largest.rank, 7);
  EXPECT_EQ(largest.local_rank, 7);
  EXPECT_EQ(largest.master_port, 65535);
  const auto refusal = [&](const std::string& name, const std::string& value) {
    std::map<std::string, std::string> changed = good;
    changed[name] = value;
    return core::message_of([&] { read_process_rank(variables(changed)); });
  };
  EXPECT_THAT(refusal("RANK", "8"), core::Says("RANK makes no sense: expected a number from 0 to 7, got 8"));
  EXPECT_THAT(refusal("LOCAL_RANK", "8"),
              core::Says("LOCAL_RANK makes no sense: expected a number from 0 to 7, got 8"));
  EXPECT_THAT(refusal("WORLD_SIZE", "0"),
              core::Says("WORLD_SIZE makes no sense: expected a number from 1 to 1048576, got 0"));
  EXPECT_THAT(refusal("MASTER_PORT", "65536"),
              core::Says("MASTER_PORT makes no sense: expected a number from 1 to 65535, got 65536"));
}

TEST(ProcessRank, SeesANameOfThisMachineThatOthersCannotUse) {
  EXPECT_TRUE(is_own_name_of_loopback("localhost", "localhost.example.org"));
  EXPECT_TRUE(is_own_name_of_loopback("localhost", "localhost"));
  EXPECT_FALSE(is_own_name_of_loopback("localhost", "node1")) << "that is meant for one machine";
  EXPECT_FALSE(is_own_name_of_loopback("127.0.0.1", "localhost"));
  EXPECT_FALSE(is_own_name_of_loopback("localhost", ""));
}

}  // namespace
}  // namespace trainyard::parallel::process_rank_test
