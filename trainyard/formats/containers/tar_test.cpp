#include "trainyard/formats/containers/tar.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/testing/hostile_input.h"
#include "trainyard/formats/testing/testdata.h"

namespace trainyard::formats::tar_test {
namespace {

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

}  // namespace
}  // namespace trainyard::formats::tar_test
