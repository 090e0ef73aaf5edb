#include "trainyard/data/tools/index_shards.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/data/testing/dataset_folder.h"
#include "trainyard/formats/records/record_index.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data::index_shards_test {
namespace {

using core::ErrorCode, ::testing::AllOf, ::testing::ElementsAre, ::testing::HasSubstr;

class IndexShards : public DatasetFolderTest {
 protected:
  void write_records(const std::string& name, int count) {
    files_.make_directories(core::parent_path(temp_.file(name)));
    formats::TfRecordWriter writer(files_.open_write(temp_.file(name)));
    for (int i = 0; i < count; ++i) writer.write(std::string(static_cast<size_t>(10 + i), 'x'));
    writer.close();
  }
  size_t records_in(const std::string& index) {
    return formats::parse_record_index(files_.read_file(temp_.file(index))).size();
  }
};

TEST_F(IndexShards, EachFolderOfShardsHasItsIndexFiles) {
  write_records("train-00000-of-00002", 3);
  write_records("train-00001-of-00002", 1);
  write("train-00001-of-00002.idx", "of another program");
  write("readme-of.txt");
  write("notes-of-mine.txt");
  files_.make_directories(temp_.file("backup-00000-of-00002"));
  write_records("val/validation-00000-of-00001", 5);
  files_.make_directories(temp_.file("train"));
  const IndexedShards written = write_index_files(temp_.path());
  EXPECT_EQ(written.shards, 3);
  EXPECT_EQ(written.records, 9);
  EXPECT_THAT(written.folders, ElementsAre(temp_.file("idx"), temp_.file("val/idx"))) << "none without shards";
  EXPECT_THAT(files_.list(temp_.file("idx")), ElementsAre("train-00000-of-00002.idx", "train-00001-of-00002.idx"));
  EXPECT_EQ(records_in("idx/train-00000-of-00002.idx"), 3U);
  EXPECT_EQ(records_in("idx/train-00001-of-00002.idx"), 1U);
  EXPECT_EQ(records_in("val/idx/validation-00000-of-00001.idx"), 5U);
  EXPECT_FALSE(files_.exists(temp_.file("train/idx")));
}

TEST_F(IndexShards, AllMayBeInOneFolder) {
  write_records("train-00000-of-00001", 3);
  write_records("val/validation-00000-of-00001", 5);
  const IndexedShards written = write_index_files(temp_.path(), temp_.file("all/of/them"));
  EXPECT_EQ(written.shards, 2);
  EXPECT_THAT(written.folders, ElementsAre(temp_.file("all/of/them")));
  EXPECT_THAT(files_.list(temp_.file("all/of/them")),
              ElementsAre("train-00000-of-00001.idx", "validation-00000-of-00001.idx"));
}

TEST_F(IndexShards, RefusesTwoShardsOfOneNameInOneFolder) {
  write_records("train-00000-of-00001", 3);
  write_records("train/train-00000-of-00001", 5);
  EXPECT_THAT(core::message_of([&] { write_index_files(temp_.path(), temp_.file("all")); }),
              AllOf(HasSubstr("two shards of one name"), HasSubstr(temp_.file("train/train-00000-of-00001")),
                    HasSubstr("the same name as " + temp_.file("train-00000-of-00001"))));
  EXPECT_FALSE(files_.exists(temp_.file("all")));
  EXPECT_EQ(write_index_files(temp_.path()).records, 8) << "each beside itself";
}

TEST_F(IndexShards, AFolderWithoutShardsIsAnError) {
  write("train.tar");
  EXPECT_THAT(core::message_of([&] { write_index_files(temp_.path()); }, ErrorCode::kNotFound),
              AllOf(HasSubstr("no TFRecords to index"), HasSubstr(temp_.path())));
  EXPECT_FALSE(files_.exists(temp_.file("idx")));
}

// A writer of more shards than samples leaves some empty.
TEST_F(IndexShards, AnEmptyShardHasAnEmptyIndex) {
  write_records("train-00000-of-00003", 0);
  write_records("train-00001-of-00003", 2);
  write_records("train-00002-of-00003", 0);
  const IndexedShards written = write_index_files(temp_.path());
  EXPECT_EQ(written.shards, 3);
  EXPECT_EQ(written.records, 2);
  EXPECT_EQ(files_.read_file(temp_.file("idx/train-00000-of-00003.idx")), "");
  EXPECT_EQ(records_in("idx/train-00000-of-00003.idx"), 0U);
  EXPECT_EQ(records_in("idx/train-00001-of-00003.idx"), 2U);
}

}  // namespace
}  // namespace trainyard::data::index_shards_test
