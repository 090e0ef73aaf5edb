// Zip archives by the format's description (PKWARE's APPNOTE.TXT), those of more than 4 GiB among them: their records
// are the same, whatever the size is.
#include "trainyard/formats/containers/zip.h"

#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>
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
  EXPECT_TRUE(looks_like_zip(MemoryFile("PK\3\4")));
  EXPECT_FALSE(looks_like_zip(MemoryFile("PK\3")));
  EXPECT_FALSE(looks_like_zip(MemoryFile("PK\3\5")));
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

template <typename T>
std::string with(std::string archive, size_t place, T number) {
  std::string bytes;
  append_little_endian<T>(bytes, number);
  return archive.replace(place, bytes.size(), bytes);
}

// Places in the archive without Zip64: headers and data of the members, their entries, the end.
constexpr size_t kSecond = 43, kFirstEntry = 89, kSecondEntry = 145, kEndRecord = 202, kBytes = 224;

TEST(Zip, SaysWhatIsWrongAndInWhichEntry) {
  const std::string good = archive_of_64({false, false, false}, false);
  ASSERT_EQ(good.size(), kBytes);
  const std::string damaged = "; the file is damaged or incomplete: get or write it again";
  const auto corrupt = [](const std::string& archive) {
    return core::message_of([&] { members_of(archive); }, core::ErrorCode::kCorruptData);
  };
  for (const auto& [entry, place] : {std::pair(0, kFirstEntry), {1, kSecondEntry}}) {
    const std::string broken = fmt::format("zip archive's directory is broken: memory: got entry {}", entry) + damaged;
    EXPECT_EQ(corrupt(with<uint8_t>(good, place, 'Q')), broken);
  }
  EXPECT_EQ(corrupt(with<uint16_t>(good, kEndRecord + 10, 3)),
            "zip archive's directory is broken: memory: got entry 2" + damaged);
  for (const size_t length : {28, 30, 32}) {  // of name, extra fields and comment: one more than there are
    EXPECT_EQ(corrupt(with<uint16_t>(good, kSecondEntry + length,
                                     length == 28   ? 7
                                     : length == 30 ? 6
                                                    : 1)),
              "zip archive's directory is broken: memory: got entry 1" + damaged)
        << length;
  }
  EXPECT_EQ(corrupt(with<uint32_t>(good, kSecondEntry + 42, kSecond - 1)),
            "zip archive's directory points beside its members: memory" + damaged);
  EXPECT_EQ(corrupt(with<uint32_t>(good, kSecondEntry + 42, kBytes - 29)),
            "zip archive refers behind its end: memory" + damaged);
  EXPECT_EQ(corrupt(with<uint32_t>(good, kEndRecord + 12, (64U << 20) + 1)),
            "zip archive's directory is impossibly large: memory" + damaged);
  EXPECT_EQ(corrupt(with<uint32_t>(good, kEndRecord + 12, 64U << 20)),
            "zip archive refers behind its end: memory" + damaged)
      << "the largest";
  EXPECT_EQ(corrupt(good.substr(0, kBytes - 1)), "zip archive has no directory at its end: memory" + damaged);
  EXPECT_EQ(corrupt("PK"), "zip archive has no directory at its end: memory" + damaged);

  // The second member may reach up to the file's end.
  const size_t data = kSecond + 30 + 6 + 3;
  const auto of_size = [&](uint32_t size) {
    return with<uint32_t>(with<uint32_t>(good, kSecondEntry + 24, size), kSecondEntry + 20, size);
  };
  const std::string longest = of_size(kBytes - data);
  EXPECT_EQ(members_of(longest), "first: 11111\nsecond: " + longest.substr(data) + "\n");
  EXPECT_EQ(corrupt(of_size(kBytes - data + 1)),
            "a zip archive's member ends behind the file: memory: got second" + damaged);
}

TEST(Zip, TakesStoredMembersOnly) {
  const std::string good = archive_of_64({false, false, false}, false), both = members_of(good);
  const std::string refused =
      "zip archive has a compressed or encrypted member: memory: expected members that are stored as they are, as "
      "torch.save does, got second; load it in Python and save the weights: torch.save(model.state_dict(), path)";
  const auto message = [](const std::string& archive) {
    return core::message_of([&] { members_of(archive); }, core::ErrorCode::kUnsupported);
  };
  EXPECT_EQ(message(with<uint16_t>(good, kSecondEntry + 8, 1)), refused) << "encrypted";
  EXPECT_EQ(message(with<uint16_t>(good, kSecondEntry + 10, 8)), refused) << "deflated";
  EXPECT_EQ(message(with<uint32_t>(good, kSecondEntry + 20, 6)), refused) << "packed to 6 bytes";
  EXPECT_EQ(members_of(with<uint16_t>(good, kSecondEntry + 8, 2)), both) << "another flag";
}

TEST(Zip, PassesOverCommentsOfEntries) {
  const std::string good = archive_of_64({false, false, false}, false);
  std::string archive = with<uint16_t>(good, kFirstEntry + 32, 2);
  archive = with<uint32_t>(archive, kEndRecord + 12, kEndRecord + 2 - kFirstEntry);
  archive.insert(kSecondEntry, "cc");
  EXPECT_EQ(members_of(archive), members_of(good));
}

}  // namespace
}  // namespace trainyard::formats::zip_test
