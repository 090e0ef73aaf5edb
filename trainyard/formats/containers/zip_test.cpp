// Zip archives by the format's description (PKWARE's APPNOTE.TXT), those of more than 4 GiB among them: their records
// are the same, whatever the size is.
#include "trainyard/formats/containers/zip.h"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/formats/containers/little_endian.h"
#include "trainyard/formats/testing/testdata.h"

namespace trainyard::formats::zip_test {
namespace {

constexpr uint32_t kIn64 = 0xFFFFFFFF;

struct Extra64 {
  bool size = true, packed = true, header = true;  // what the entry's Zip64 part has
  int short_by = 0;                                // bytes that are missing from it
};

// Appends the 26 bytes from a header's version to the length of its extra fields.
void append_common(std::string& out, uint32_t packed, uint32_t size, size_t name, size_t extra) {
  out.append(14, '\0');  // version 0, no flags, stored as it is, time, date, checksum
  append_little_endian<uint32_t>(out, packed);
  append_little_endian<uint32_t>(out, size);
  append_little_endian<uint16_t>(out, static_cast<uint16_t>(name));
  append_little_endian<uint16_t>(out, static_cast<uint16_t>(extra));
}

// An archive of "first" and "second", 5 and 7 bytes, with Zip64 records for the second.
std::string archive_of_64(const Extra64& has, bool end64 = true, const std::string& comment = "") {
  std::string content, directory;
  const auto add = [&](const std::string& name, const std::string& data, const Extra64& own) {
    std::string extra;
    append_little_endian<uint16_t>(extra, 0x5455);  // a field of another kind in front: a time
    append_little_endian<uint16_t>(extra, 1);
    extra += '\0';
    std::string fields;
    if (own.size) append_little_endian<uint64_t>(fields, data.size());
    if (own.packed) append_little_endian<uint64_t>(fields, data.size());
    if (own.header) append_little_endian<uint64_t>(fields, content.size());
    fields.resize(fields.size() - static_cast<size_t>(own.short_by));
    if (!fields.empty()) {
      append_little_endian<uint16_t>(extra, 1);
      append_little_endian<uint16_t>(extra, static_cast<uint16_t>(fields.size()));
      extra += fields;
    }
    const auto bytes = static_cast<uint32_t>(data.size());
    append_little_endian<uint32_t>(directory, 0x02014b50);
    append_little_endian<uint16_t>(directory, 45);
    append_common(directory, own.packed ? kIn64 : bytes, own.size ? kIn64 : bytes, name.size(), extra.size());
    directory.append(10, '\0');  // comment, disk, attributes
    append_little_endian<uint32_t>(directory, own.header ? kIn64 : static_cast<uint32_t>(content.size()));
    directory += name + extra;
    append_little_endian<uint32_t>(content, 0x04034b50);
    append_common(content, bytes, bytes, name.size(), 3);
    content += name + "xyz" + data;
  };
  add("first", "11111", {false, false, false});
  add("second", "2222222", has);
  const uint64_t begin = content.size();
  content += directory;
  if (end64) {
    const uint64_t record = content.size();
    append_little_endian<uint32_t>(content, 0x06064b50);
    append_little_endian<uint64_t>(content, 44);
    append_little_endian<uint32_t>(content, 45 + (45 << 16));
    append_little_endian<uint64_t>(content, 0);  // disks
    append_little_endian<uint64_t>(content, 2);
    append_little_endian<uint64_t>(content, 2);
    append_little_endian<uint64_t>(content, directory.size());
    append_little_endian<uint64_t>(content, begin);
    append_little_endian<uint32_t>(content, 0x07064b50);
    append_little_endian<uint32_t>(content, 0);
    append_little_endian<uint64_t>(content, record);
    append_little_endian<uint32_t>(content, 1);
  }
  append_little_endian<uint32_t>(content, 0x06054b50);
  append_little_endian<uint32_t>(content, 0);
  append_little_endian<uint16_t>(content, end64 ? 0xFFFF : 2);
  append_little_endian<uint16_t>(content, end64 ? 0xFFFF : 2);
  append_little_endian<uint32_t>(content, end64 ? kIn64 : static_cast<uint32_t>(directory.size()));
  append_little_endian<uint32_t>(content, end64 ? kIn64 : static_cast<uint32_t>(begin));
  append_little_endian<uint16_t>(content, static_cast<uint16_t>(comment.size()));
  return content + comment;
}

// "name: content", a member a line.
std::string members_of(const std::string& archive) {
  std::string text;
  for (const ZipMember& member : read_zip_directory(MemoryFile(archive))) {
    text += member.name + ": " + archive.substr(member.offset, member.size) + "\n";
  }
  return text;
}

TEST(Zip, FindsMembersByZip64RecordsAndWithout) {
  const std::string both = "first: 11111\nsecond: 2222222\n";
  EXPECT_EQ(members_of(archive_of_64({false, false, false}, false)), both);
  EXPECT_EQ(members_of(archive_of_64({})), both);
  EXPECT_EQ(members_of(archive_of_64({true, true, false})), both) << "only the fields that did not fit are there";
  EXPECT_EQ(members_of(archive_of_64({false, false, true})), both);
  EXPECT_EQ(members_of(archive_of_64({}, false)), both) << "a small directory of large members";
  EXPECT_TRUE(looks_like_zip(MemoryFile(archive_of_64({}))));
  EXPECT_FALSE(looks_like_zip(MemoryFile(std::string("PK"))));
}

TEST(Zip, LooksBehindACommentForTheEnd) {
  const std::string both = "first: 11111\nsecond: 2222222\n";
  EXPECT_EQ(members_of(archive_of_64({}, true, "a comment")), both);
  EXPECT_EQ(members_of(archive_of_64({}, true, std::string(65535, '.'))), both) << "the longest";
  std::string like_the_end(34, '\0');
  like_the_end.replace(0, 4, "PK\5\6");
  EXPECT_EQ(members_of(archive_of_64({}, true, like_the_end)), both);
}

TEST(Zip, RecordsThatDoNotFitAreRefused) {
  const auto code = [](const std::string& archive) { return core::code_of([&] { members_of(archive); }); };
  EXPECT_EQ(code(archive_of_64({.short_by = 1})), core::ErrorCode::kCorruptData) << "a place that is cut off";
  EXPECT_EQ(code(archive_of_64({.short_by = 9})), core::ErrorCode::kUnsupported) << "a packed size that is cut off";
  std::string archive = archive_of_64({});
  archive[archive.find("PK\6\6")] = 'Q';
  EXPECT_EQ(core::thrown_by([&] { members_of(archive); }).detail().problem, "zip archive has a broken Zip64 directory");
  EXPECT_EQ(code(std::string(100, 'x')), core::ErrorCode::kCorruptData);
  EXPECT_EQ(code(""), core::ErrorCode::kCorruptData);
}

}  // namespace
}  // namespace trainyard::formats::zip_test
