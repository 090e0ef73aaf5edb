#include "trainyard/formats/containers/tar.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/testdata.h"

namespace trainyard::formats::tar_test {
namespace {

using namespace std::string_literals;

std::string content_of(const std::string& archive, const TarMember& member) {
  return archive.substr(member.offset, member.size);
}

std::vector<std::pair<std::string, std::string>> read(const std::string& archive) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const TarMember& member : index_tar(MemoryFile(archive))) {
    files.emplace_back(member.name, content_of(archive, member));
  }
  return files;
}

// Written by Python's tarfile: tools/golden/make_fuzz_seeds.py.
TEST(Tar, ReadsWhatPythonWrites) {
  EXPECT_EQ(read(testdata("fuzz/tar/ustar")),
            (std::vector<std::pair<std::string, std::string>>{{"a/0001.jpg", "\xff\xd8"},
                                                              {"a/0001.cls", "3"},
                                                              {"a/0002.png", "\x89PNG"},
                                                              {"a/0002.json", "{\"label\": 4}"}}));
  std::string folders;
  for (int i = 0; i < 30; ++i) folders += "long/";
  for (const char* name : {"fuzz/tar/gnu_long", "fuzz/tar/pax_long"}) {
    EXPECT_EQ(read(testdata(name)), (std::vector<std::pair<std::string, std::string>>{
                                        {folders + "name.jpg", "\xff\xd8"}, {folders + "name.cls", "5"}}))
        << name;
  }
}

std::string written(const std::vector<std::pair<std::string, std::string>>& members) {
  const core::TempDir directory;
  TarWriter writer(core::local_file_system().open_write(directory.file("x.tar")));
  for (const auto& [name, content] : members) writer.write(name, content);
  const uint64_t bytes = writer.bytes();
  writer.close();
  std::string archive = core::local_file_system().read_file(directory.file("x.tar"));
  EXPECT_EQ(archive.size(), bytes + 1024);
  return archive;
}

TEST(Tar, ReadsWhatItWrites) {
  std::vector<std::pair<std::string, std::string>> members = {{"0001.jpg", std::string(1000, 'x')}, {"0001.cls", ""}};
  for (const size_t length : {99U, 100U, 101U, 991U, 992U, 993U, 4000U}) {
    members.emplace_back(std::string(length, 'n'), fmt::format("{}", length));
  }
  const std::string archive = written(members);
  EXPECT_EQ(archive.size() % 512, 0U);
  EXPECT_EQ(read(archive), members);
  EXPECT_EQ(written(members), archive) << "the same files, the same archive";
  EXPECT_EQ(read(archive.substr(0, archive.size() - 1024)), members) << "without the end's blocks";
  EXPECT_TRUE(read("").empty());
}

// Puts other bytes into the size of the header at `header`, and their sum into its checksum.
void set_size(std::string& archive, size_t header, const std::string& size) {
  archive.replace(header + 124, 12, size);
  archive.replace(header + 148, 8, "        ");
  uint64_t sum = 0;
  for (size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(archive[header + i]);
  archive.replace(header + 148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
}

TEST(Tar, SizesAsGnuStoresLargeOnes) {
  std::string archive = written({{"a.jpg", "12345"}});
  set_size(archive, 0, std::string("\x80\0\0\0\0\0\0\0\0\0\0\x05", 12));
  EXPECT_EQ(read(archive)[0].second, "12345");
}

// Writers of files over 8 GiB leave the header's size 0 and tell it in a pax header in front.
TEST(Tar, APaxHeaderTellsTheSizeInPlaceOfTheFilesOwn) {
  std::string archive = written({{"pax", "9 size=5\n"}, {"a.jpg", "12345"}, {"b.cls", "1"}});
  archive[156] = 'x';
  set_size(archive, 0, archive.substr(124, 12));  // the checksum, for the type
  set_size(archive, 1024, std::string("00000000000\0", 12));
  EXPECT_EQ(read(archive), (std::vector<std::pair<std::string, std::string>>{{"a.jpg", "12345"}, {"b.cls", "1"}}));
  const MemoryFile file(archive);
  const TarMember member = index_tar(file)[0];
  EXPECT_NO_THROW(check_tar_header(file, member.offset, member.size));
  EXPECT_EQ(core::code_of([&] {
              check_tar_header(MemoryFile(written({{"a.jpg", "1234"}})), 512, 5);
            }),
            core::ErrorCode::kCorruptData);
}

TEST(Tar, EveryTruncationGivesTheFilesBeforeItOrAnError) {
  const std::string archive = written({{"a.jpg", std::string(600, 'x')}, {"a.cls", "1"}});
  for_each_truncation(archive, [&](std::string_view part) {
    const MemoryFile file(part);
    try {
      EXPECT_LE(index_tar(file).size(), 2U);
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
      EXPECT_NE(error.detail().where.find("memory at offset "), std::string::npos) << error.what();
    }
  });
}

TEST(Tar, EveryFlippedBitOfAHeaderIsNoticed) {
  const std::string archive = written({{"a.jpg", "12345"}});
  for (size_t bit = 0; bit < 512 * 8; ++bit) {
    std::string damaged = archive;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    if (bit / 8 >= 148 && bit / 8 < 156) continue;  // the checksum may be written in several ways
    EXPECT_EQ(core::code_of([&] { read(damaged); }), core::ErrorCode::kCorruptData) << bit / 8;
  }
}

TEST(Tar, DamagedFilesGiveMembersOrErrors) {
  for (const char* name : {"fuzz/tar/ustar", "fuzz/tar/gnu_long", "fuzz/tar/pax_long"}) {
    for_each_mutation(testdata(name), 2000, [](const std::string& damaged) {
      const MemoryFile file(damaged);
      expect_value_or_error([&] { index_tar(file); });
    });
  }
}

std::string message(const std::string& archive) {
  return core::message_of([&] { read(archive); }, core::ErrorCode::kCorruptData);
}

std::string of_type(std::string archive, size_t header, char type) {
  archive[header + 156] = type;
  set_size(archive, header, archive.substr(header + 124, 12));  // the checksum, for the type
  return archive;
}

TEST(Tar, SaysWhatIsWrongAndWhere) {
  const std::string good = written({{"a.jpg", "12345"}, {"b.cls", "1"}});
  const std::string remedy = "; copy or write the archive again";
  EXPECT_EQ(message(good.substr(0, 1024 + 511)),
            "archive ends within a header: memory at offset 1024: expected 512 bytes, got 511" + remedy);
  std::string wrong_sum = good;
  wrong_sum[1024] = 'c';  // was b
  const std::string sum = good.substr(1024 + 148, 6);
  const int stored = std::stoi(sum, nullptr, 8);
  EXPECT_EQ(message(wrong_sum), fmt::format("checksum of the archive's header differs: memory at offset 1024: expected "
                                            "{}, got {}{}",
                                            stored, stored + 1, remedy));
  wrong_sum = good;
  wrong_sum[1024 + 148] = '9';
  EXPECT_EQ(message(wrong_sum), fmt::format("checksum of the archive's header differs: memory at offset 1024: expected "
                                            "octal digits, got {}{}",
                                            stored, remedy));
  const uint64_t behind = good.size() - 1536;  // what is there behind the second header
  std::string longer = good;
  set_size(longer, 1024, fmt::format("{:011o}", behind + 1) + '\0');
  EXPECT_EQ(message(longer), fmt::format("file in the archive is longer than the rest of it: memory at offset 1024: "
                                         "expected {} bytes, got {}{}",
                                         behind + 1, behind, remedy));
  set_size(longer, 1024, fmt::format("{:011o}", behind) + '\0');
  EXPECT_EQ(read(longer)[1].second.size(), behind) << "up to the file's end";
  set_size(longer, 1024, "x0000000001\0"s);
  EXPECT_EQ(message(longer), fmt::format("file in the archive is longer than the rest of it: memory at offset 1024: "
                                         "expected a size, got {}{}",
                                         behind, remedy));
  EXPECT_EQ(message(of_type(good, 1024, 'S')), "sparse files in archives are not read: memory at offset 1024" + remedy);
}

// `cat a.tar b.tar`, and a copy with a hole.
TEST(Tar, WhatIsBehindTheEndIsNotLostSilently) {
  const std::string archive = written({{"a.jpg", "12345"}, {"a.cls", "1"}});
  const uint64_t end = archive.size() - 1024;
  const auto said = [](uint64_t other, uint64_t zeros) {
    return fmt::format(
        "archive continues behind its end: memory at offset {}: expected zeros from offset {} on, got "
        "other bytes; copy the archive again; tar --concatenate joins several",
        other, zeros);
  };
  EXPECT_EQ(message(archive + written({{"b.jpg", "67890"}})), said(archive.size(), end));
  std::string hole = archive;
  hole.replace(1024, 512, std::string(512, '\0'));  // where the second file's header was
  EXPECT_EQ(message(hole), said(1536, 1024));
  for (const size_t padding : {0U, 1U, 511U, 512U, 9216U, 65024U, 65025U, 200000U}) {
    const std::string padded = archive + std::string(padding, '\0');
    EXPECT_EQ(read(padded), read(archive)) << padding;
    EXPECT_EQ(message(padded + "x"), said(padded.size(), end)) << padding;
  }
}

TEST(Tar, HeadersOfTheNextFileHaveAtMost64KiB) {
  const auto archive = [](size_t bytes) {
    return of_type(written({{"long", std::string(bytes, 'n')}, {"a.jpg", "12345"}}), 0, 'L');
  };
  EXPECT_EQ(read(archive(65536))[0].first.size(), 65536U);
  EXPECT_EQ(message(archive(65537)),
            "header of an archive is too long: memory at offset 0: expected at most 65536 bytes, got 65537; copy or "
            "write the archive again");
}

TEST(Tar, PassesOverHeadersOfAllFilesAndOfLinks) {
  using Files = std::vector<std::pair<std::string, std::string>>;
  for (const char type : {'g', 'K'}) {
    EXPECT_EQ(read(of_type(written({{"about", "11 path=no\n"}, {"a.jpg", "12345"}}), 0, type)),
              (Files{{"a.jpg", "12345"}}))
        << type;
  }
  for (const char type : {'1', '2', '5'}) {  // links and folders are no files
    EXPECT_EQ(read(of_type(written({{"folder", ""}, {"a.jpg", "12345"}}), 0, type)), (Files{{"a.jpg", "12345"}}));
  }
  for (const char type : {'\0', '7'}) {
    EXPECT_EQ(read(of_type(written({{"a.jpg", "12345"}}), 0, type)), (Files{{"a.jpg", "12345"}}));
  }
  // What a header says is of the next file alone.
  EXPECT_EQ(read(of_type(written({{"pax", "10 path=b\n"}, {"a", "1"}, {"c", "2"}}), 0, 'x')),
            (Files{{"b", "1"}, {"c", "2"}}));
}

TEST(Tar, PaxHeadersThatLieAreErrors) {
  const auto of_records = [](const std::string& records) {
    return message(of_type(written({{"pax", records}, {"a.jpg", "12345"}}), 0, 'x'));
  };
  const std::string remedy = ": memory at offset 0; copy or write the archive again";
  for (const char* malformed : {"x path=b\n", "11 path=b\n", "8 path=b\n", "10_path=b\n", "2 \n", " 10 path=b\n"}) {
    EXPECT_EQ(of_records(malformed), "pax header is malformed" + remedy) << malformed;
  }
  EXPECT_EQ(of_records("10 path b\n"), "pax header has a record without '='" + remedy);
  EXPECT_EQ(of_records("10 size=x\n"), "pax header has a size that is no number" + remedy);
  EXPECT_EQ(of_records("11 size=5x\n"), "pax header has a size that is no number" + remedy);
  EXPECT_EQ(of_records("20 GNU.sparse.map=1\n"), "sparse files in archives are not read" + remedy);
  EXPECT_EQ(of_records("4 =\n"), "no error") << "the shortest record";
}

TEST(Tar, APrefixIsOfPosixAlone) {
  std::string archive = written({{"a.jpg", "12345"}});
  archive.replace(345, 6, "folder");
  set_size(archive, 0, archive.substr(124, 12));
  EXPECT_EQ(read(archive)[0].first, "folder/a.jpg");
  archive.replace(257, 8, "ustar  \0"s);  // GNU's
  set_size(archive, 0, archive.substr(124, 12));
  EXPECT_EQ(read(archive)[0].first, "a.jpg");
}

// The bytes that Python's tarfile and GNU tar read; the time is 0, so that the same files make the same archive.
TEST(Tar, WritesTheHeaderOfPosix) {
  const std::string header = written({{"a.jpg", std::string(73, 'x')}}).substr(0, 512);
  std::string expected(512, '\0');
  expected.replace(0, 5, "a.jpg");
  expected.replace(100, 7, "0000644");
  expected.replace(124, 11, "00000000111");
  expected.replace(136, 11, "00000000000");
  expected.replace(156, 1, "0");
  expected.replace(257, 8, "ustar\00000"s);
  set_size(expected, 0, expected.substr(124, 12));
  EXPECT_EQ(header, expected);
}

TEST(Tar, ACheckedHeaderSaysWhatItHasNow) {
  const std::string archive = written({{"a.jpg", "1234"}});
  const auto checked = [](const std::string& now, uint64_t size) {
    return core::message_of([&] { check_tar_header(MemoryFile(now), 512, size); }, core::ErrorCode::kCorruptData);
  };
  const std::string changed =
                        "archive has changed since the data set was opened: memory at offset 0: expected a file of ",
                    remedy = "; start again, and leave the data as it is during a run";
  EXPECT_EQ(checked(archive, 4), "no error");
  EXPECT_EQ(checked(archive, 5), changed + "5 bytes, got 4" + remedy);
  std::string damaged = archive;
  damaged[0] = 'b';
  EXPECT_EQ(checked(damaged, 4), changed + "4 bytes, got 4" + remedy) << "another file of the same size";
  set_size(damaged, 0, "x0000000004\0"s);
  EXPECT_EQ(checked(damaged, 4), changed + "4 bytes, got no header" + remedy);
}

TEST(Tar, SizesOfMoreThan64BitsAreNone) {
  const std::string good = written({{"a.jpg", "12345"}});
  const auto with_size = [&](const std::string& size) {
    std::string archive = good;
    set_size(archive, 0, size);
    return message(archive);
  };
  const std::string begin = "file in the archive is longer than the rest of it: memory at offset 0: expected ",
                    end = fmt::format(", got {}; copy or write the archive again", good.size() - 512);
  EXPECT_EQ(with_size("\x80\0\0\0"s + std::string(8, '\xff')), begin + "18446744073709551615 bytes" + end);
  EXPECT_EQ(with_size("\x80\0\0"s + std::string(9, '\xff')), begin + "a size" + end);
  EXPECT_EQ(with_size("\xff"s + std::string(11, '\0')), begin + "a size" + end);
  EXPECT_EQ(with_size(std::string(12, ' ')), begin + "a size" + end);
  EXPECT_EQ(with_size("  000000005 "), "no error");
}

}  // namespace
}  // namespace trainyard::formats::tar_test
