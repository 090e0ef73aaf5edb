#include "trainyard/data/datasets/shard_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::data::shard_files_test {
namespace {

using core::ErrorCode;

class ShardFilesTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) {
    core::local_file_system().write_file_atomically(temp_.file(name), content);
  }
  std::string content(const ShardFiles& shards, size_t shard) {
    std::string bytes(1, ' ');
    shards.open(shard)->read_at(0, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
    return bytes;
  }
  core::TempDir temp_;
  core::FaultInjector calls_;
  std::unique_ptr<core::FileSystem> files_ = core::make_file_system(calls_);
};

TEST_F(ShardFilesTest, KeepsTheLastOnesOpen) {
  ShardFiles shards(*files_, 2);
  for (int i = 0; i < 3; ++i) {
    write(fmt::format("{}", i), fmt::format("{}", i));
    shards.add(temp_.file(fmt::format("{}", i)));
  }
  const auto opened = [&] {
    const std::vector<std::string> log = calls_.log();
    return std::count_if(log.begin(), log.end(), [](const std::string& call) { return call.starts_with("open"); });
  };
  for (const size_t shard : {0, 1, 0, 1}) EXPECT_EQ(content(shards, shard), fmt::format("{}", shard));
  EXPECT_EQ(opened(), 2);
  const auto held = shards.open(0);
  content(shards, 1);
  content(shards, 2);  // 0 was used the longest ago
  EXPECT_EQ(opened(), 3);
  std::string byte(1, ' ');
  held->read_at(0, std::as_writable_bytes(std::span(byte.data(), 1)));
  EXPECT_EQ(byte, "0");
  content(shards, 1);
  EXPECT_EQ(opened(), 3);
  content(shards, 0);
  EXPECT_EQ(opened(), 4);
}

TEST_F(ShardFilesTest, AFileThatChangedOrVanishedIsAnError) {
  write("a", "1");
  write("b", "1");
  write("c", "1");
  ShardFiles shards(*files_);
  for (const char* name : {"a", "b", "c"}) shards.add(temp_.file(name));
  write("a", "12");
  EXPECT_THAT(core::message_of([&] { shards.open(0); }, ErrorCode::kCorruptData),
              ::testing::HasSubstr("file has changed since the data set was opened"));
  EXPECT_THAT(core::message_of([&] { shards.open(0); }, ErrorCode::kCorruptData),
              ::testing::AllOf(::testing::HasSubstr("expected 1 bytes, changed at "),
                               ::testing::HasSubstr("got 2 bytes, changed at ")));
  write("b", "2");  // the same size
  EXPECT_EQ(core::code_of([&] { shards.open(1); }), ErrorCode::kCorruptData);
  core::local_file_system().remove_file(temp_.file("c"));
  EXPECT_EQ(core::code_of([&] { shards.open(2); }), ErrorCode::kNotFound);
}

TEST_F(ShardFilesTest, AnOpenFileStaysTheOneThatItWas) {
  write("a", "1");
  ShardFiles shards(*files_);
  shards.add(temp_.file("a"));
  shards.open(0);
  write("a", "2");  // another file of that name
  EXPECT_EQ(content(shards, 0), "1");
  core::local_file_system().remove_file(temp_.file("a"));
  EXPECT_EQ(content(shards, 0), "1");
}

}  // namespace
}  // namespace trainyard::data::shard_files_test
