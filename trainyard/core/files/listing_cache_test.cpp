#include "trainyard/core/files/listing_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::core::listing_cache_test {
namespace {

using ::testing::ElementsAre;

TEST(ListingCache, ListsADirectoryOnceUntilItChangesSomethingItself) {
  const TempDir directory;
  FileSystem& machine = local_file_system();
  ListingCache files(machine);
  machine.write_file_atomically(directory.file("a"), "1");
  EXPECT_THAT(files.list(directory.path()), ElementsAre("a"));
  machine.write_file_atomically(directory.file("b"), "2");
  EXPECT_THAT(files.list(directory.path()), ElementsAre("a")) << "of another's files it knows nothing";
  EXPECT_TRUE(files.exists(directory.file("b")));
  EXPECT_EQ(files.read_file(directory.file("b")), "2");

  files.open_write(directory.file("c"))->close();
  EXPECT_THAT(files.list(directory.path()), ElementsAre("a", "b", "c"));
  files.rename(directory.file("c"), directory.file("d"));
  EXPECT_THAT(files.list(directory.path()), ElementsAre("a", "b", "d"));
  files.remove_file(directory.file("d"));
  EXPECT_THAT(files.list(directory.path()), ElementsAre("a", "b"));
  files.make_directories(directory.file("e"));
  EXPECT_THAT(files.list(directory.path()), ElementsAre("a", "b", "e"));
  files.remove_tree(directory.file("e"));
  EXPECT_THAT(files.list(directory.path()), ElementsAre("a", "b"));
  machine.write_file_atomically(directory.file("f"), "3");
  files.invalidate();
  EXPECT_THAT(files.list(directory.path()), ElementsAre("a", "b", "f"));
}

TEST(ListingCache, AsksAgainForWhatWasNotThere) {
  const TempDir directory;
  ListingCache files(local_file_system());
  EXPECT_EQ(code_of([&] { files.list(directory.file("late")); }), ErrorCode::kNotFound);
  local_file_system().make_directories(directory.file("late"));
  EXPECT_TRUE(files.list(directory.file("late")).empty());
}

TEST(ListingCache, ListsWhatItAppendsToAndLinks) {
  const TempDir directory;
  ListingCache files(local_file_system());
  EXPECT_TRUE(files.list(directory.path()).empty());
  for (const char* const line : {"1", "2"}) {
    const auto log = files.open_append(directory.file("log"));
    log->write(line);
    log->close();
    EXPECT_THAT(files.list(directory.path()), ElementsAre("log"));
  }
  ASSERT_TRUE(files.link_file(directory.file("log"), directory.file("second")));
  EXPECT_THAT(files.list(directory.path()), ElementsAre("log", "second"));
  EXPECT_EQ(files.read_file(directory.file("second")), "12");
}

}  // namespace
}  // namespace trainyard::core::listing_cache_test
