// Checkpoints that were changed, cut off or made by someone hostile: each is an error that says where, none is loaded.
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trainyard/core/files/crc32c.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"
#include "trainyard/train/checkpoint/checkpoint_reader.h"
#include "trainyard/train/testing/checkpoint_state.h"

namespace trainyard::train::checkpoint_damage_test {
namespace {

using ::testing::HasSubstr;

class CheckpointDamage : public ::testing::Test {
 protected:
  core::TempDir directory_;
  core::FileSystem& files_ = core::local_file_system();
  CheckpointInfo saved_ =
      CheckpointStore(directory_.path())
          .save(5, {.model = "lenet", .dataset = "shapes", .num_classes = 12}, VersionedState(5, 20));

  std::string path(std::string_view file) const { return core::join_path(saved_.path, file); }
  void write(std::string_view file, std::string_view content) {
    const auto out = files_.open_write(path(file));
    out->write(content);
    out->close();
  }
  // In place: much quicker than writing the file again.
  void put_byte(std::string_view file, size_t at, char byte) const {
    std::fstream stream(path(file), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(at)).put(byte);
  }
  std::optional<core::Error> opening() {
    return error_of([&] { open_checkpoint(saved_, nullptr); });
  }
  // Opens a checkpoint whose manifest is `text` up to its checksum, which is made to be right.
  std::optional<core::Error> opening_manifest(const std::string& body) {
    write(kManifestFile, body + checksum_line(body));
    return opening();
  }
  static std::string checksum_line(const std::string& body) {
    char text[64];
    std::snprintf(text, sizeof text, "\"crc32c\": \"0x%08x\"\n}\n", core::crc32c(body));
    return text;
  }
  // The manifest's bytes before the checksum, with one piece replaced.
  std::string body_with(const std::string& piece, const std::string& by) {
    std::string body = manifest_.substr(0, manifest_.rfind("\"crc32c\""));
    const size_t at = body.find(piece);
    EXPECT_NE(at, std::string::npos) << piece;
    return body.replace(at, piece.size(), by);
  }
  const std::string manifest_ = files_.read_file(path(kManifestFile));
};

TEST_F(CheckpointDamage, EveryFlippedBitIsSeen) {
  for (const std::string_view file : {kManifestFile, kTensorFile}) {
    const std::string content = files_.read_file(path(file));
    ASSERT_GT(content.size(), 200U);
    for (size_t i = 0; i < content.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        put_byte(file, i, static_cast<char>(content[i] ^ (1 << bit)));
        const auto error = opening();
        ASSERT_TRUE(error) << file << " byte " << i << " bit " << bit;
        ASSERT_EQ(error->code(), core::ErrorCode::kCorruptData) << error->what();
        ASSERT_THAT(error->what(), HasSubstr(path(file)));
      }
      put_byte(file, i, content[i]);
    }
    ASSERT_FALSE(opening());
  }
}

TEST_F(CheckpointDamage, EveryTruncationIsSeen) {
  for (const std::string_view file : {kManifestFile, kTensorFile}) {
    const std::string content = files_.read_file(path(file));
    for (size_t size = content.size(); size-- > 0;) {
      ASSERT_EQ(::truncate(path(file).c_str(), static_cast<off_t>(size)), 0);
      const auto error = opening();
      ASSERT_TRUE(error) << file << " of " << size << " bytes";
      ASSERT_EQ(error->code(), core::ErrorCode::kCorruptData) << error->what();
    }
    for (const char* more : {"x", "\n", " ", "}"}) {
      write(file, content + more);
      ASSERT_TRUE(opening());
    }
    write(file, content);
  }
}

TEST_F(CheckpointDamage, AMessageNamesFileTensorExpectedActualAndRemedy) {
  std::string content = files_.read_file(path(kTensorFile));
  content[kTensorFileHeader.size() + 3] ^= 1;
  write(kTensorFile, content);
  EXPECT_THAT(
      opening()->what(),
      ::testing::MatchesRegex(
          "damaged checkpoint: tensor checksum differs: .*/model.ckpt-5/tensors.bin, tensor weights at offset 16: "
          "expected crc32c 0x[0-9a-f]{8}, got 0x[0-9a-f]{8}; copy the checkpoint here again, or pass --ignore_.*"));
}

// What the checksums are for: without them a changed weight is loaded and nobody knows.
// Opening reads all of the tensor file; loading reads each tensor once more.
TEST_F(CheckpointDamage, ABitThatFlipsAfterOpeningIsSeenWhenTheTensorIsRead) {
  for (const char* name : {"weights", "momentum"}) {
    const std::string content = files_.read_file(path(kTensorFile));
    const CheckpointReader reader(saved_.path, files_);
    for (const TensorEntry& entry : reader.manifest().tensors) {
      put_byte(kTensorFile, entry.offset, static_cast<char>(content[entry.offset] ^ 1));
    }
    const auto error = error_of([&] { reader.tensor(name); });
    ASSERT_TRUE(error) << name;
    EXPECT_EQ(error->code(), core::ErrorCode::kCorruptData);
    EXPECT_THAT(error->what(), HasSubstr(name));
    for (const TensorEntry& entry : reader.manifest().tensors)
      put_byte(kTensorFile, entry.offset, content[entry.offset]);
    EXPECT_NO_THROW(reader.tensor(name));
  }
}

TEST_F(CheckpointDamage, WithoutChecksumsAFlippedBitGoesUnseen) {
  std::string content = files_.read_file(path(kTensorFile));
  content[kTensorFileHeader.size() + 2] ^= 0x40;
  write(kTensorFile, content);
  EXPECT_TRUE(opening());
  const CheckpointReader trusting(saved_.path, files_, Checksums::kIgnore);
  EXPECT_NE(trusting.tensor("weights").const_data_ptr<float>()[0], 5.0F);
  EXPECT_EQ(trusting.tensor("weights").const_data_ptr<float>()[1], 5.0F);
}

TEST_F(CheckpointDamage, AnotherVersionIsUnsupported) {
  const auto error = opening_manifest(body_with("\"version\": 1", "\"version\": 2"));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), core::ErrorCode::kUnsupported);
}

// Manifests with a right checksum and wrong content.
TEST_F(CheckpointDamage, HostileManifestsAreRefusedBeforeAnythingIsAllocated) {
  ASSERT_FALSE(opening_manifest(body_with("\"version\"", "\"version\"")));
  const std::string large = "4611686018427387904";  // 2^62
  const std::vector<std::pair<std::string, std::string>> changes{
      {"\"shape\":[20]", "\"shape\":[" + large + "]"},
      {"\"shape\":[20]", "\"shape\":[" + large + "," + large + "]"},
      {"\"shape\":[20]", "\"shape\":[0," + large + "," + large + "]"},
      {"\"shape\":[20]", "\"shape\":[-20]"},
      {"\"shape\":[20]", "\"shape\":[20.0]"},
      {"\"shape\":[20]", "\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,20]"},
      {"\"shape\":[20]", "\"shape\":20"},
      {"\"shape\":[20]", "\"shape\":[21]"},
      {"\"bytes\":80", "\"bytes\":" + large},
      {"\"bytes\":80", "\"bytes\":-80"},
      {"\"bytes\":80", "\"bytes\":1e2"},
      {"\"bytes\":80", "\"bytes\":99999999999999999999"},
      {"\"offset\":96", "\"offset\":16"},  // over the tensor before
      {"\"offset\":96", "\"offset\":17"},
      {"\"offset\":96", "\"offset\":" + large},
      {"\"offset\":16", "\"offset\":0"},  // over the header
      {"\"dtype\":\"float32\"", "\"dtype\":\"complex64\""},
      {"\"dtype\":\"float32\"", "\"dtype\":\"float64\""},
      {"\"dtype\":\"float32\"", "\"dtype\":32"},
      {"\"crc32c\":", "\"crc32c\":99999"},  // the digits behind make it larger than 32 bits
      {"\"name\":\"weights\"", "\"name\":\"\""},
      {"\"name\":\"weights\"", "\"name\":\"momentum\""},
      {"\"name\":\"weights\"", "\"name\":\"" + std::string(2000, 'x') + "\""},
      {"\"name\":\"weights\"", "\"nom\":\"weights\""},
      {"\"tensor_file_bytes\": 216", "\"tensor_file_bytes\": " + large},
      {"\"tensor_file_bytes\": 216", "\"tensor_file_bytes\": 217"},
      {"\"global_step\": 5", "\"global_step\": -5"},
      {"\"identity\": {", "\"identity\": [], \"other\": {"},
      {"\"num_classes\":12", "\"num_classes\":\"12\""},
      {"\"integer\":5", "\"integer\":5.5"},
      {"\"integer\":5", "\"integer\":9223372036854775808"},
      {"\"integer\":5", "\"integer\":5,\"real\":5.0"},
      {"\"integer\":5", "\"real\":\"five\""},
      {"\"integer\":5", "\"text_hex\":\"abc\""},
      {"\"integer\":5", "\"pickle\":5"},
      {"\"text\":\"version 5\"", "\"text\":7"},
      {"trainyard-checkpoint", "another"},
      {"\"tensors\": [", "\"tensors\": [[[[[[[[[[[[]]]]]]]]]]],"},
      {"\"tensors\": [", "\"tensors\": [" + std::string(1'000'000, '[')},
      {"\"tensors\": [", "\"tensors\": [7,"},
      {"\"tensors\": [", "\"tensors\": {"},
      {"{", ""},
  };
  for (const auto& [piece, by] : changes) {
    const auto error = opening_manifest(body_with(piece, by));
    ASSERT_TRUE(error) << piece << " -> " << by.substr(0, 60);
    EXPECT_EQ(error->code(), core::ErrorCode::kCorruptData) << error->what();
    EXPECT_THAT(error->what(), HasSubstr(path(kManifestFile)));
    EXPECT_LT(std::string(error->what()).size(), 3000U);
  }
}

// Each tensor fits into a file by itself, and not behind its header.
TEST_F(CheckpointDamage, TensorsThatNoFileHoldsAreRefused) {
  const auto error =
      opening_manifest(body_with("\"shape\":[20],\"offset\":16,\"bytes\":80",
                                 "\"shape\":[2305843009213693951],\"offset\":16,\"bytes\":9223372036854775804"));
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("damaged checkpoint: tensors are too large: "));
  EXPECT_THAT(error->what(), HasSubstr("tensor weights: expected less than 2^63 bytes in all, got more"));
}

TEST_F(CheckpointDamage, AManifestOverItsLimitIsNotRead) {
  const auto out = files_.open_write(path(kManifestFile));
  out->close();
  ASSERT_EQ(::truncate(path(kManifestFile).c_str(), static_cast<off_t>(kMaxManifestBytes) + 1), 0);
  const auto error = opening();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), core::ErrorCode::kCorruptData);
  EXPECT_THAT(error->what(), HasSubstr("too large"));
}

}  // namespace
}  // namespace trainyard::train::checkpoint_damage_test
