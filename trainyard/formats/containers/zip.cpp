#include "trainyard/formats/containers/zip.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/formats/containers/little_endian.h"

namespace trainyard::formats {
namespace {

constexpr uint32_t kMember = 0x04034b50, kEntry = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kLocator64 = 0x07064b50;
constexpr uint64_t kMemberBytes = 30, kEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr uint64_t kLongestComment = 65535;
constexpr uint64_t kIn64 = 0xFFFFFFFF;  // the number is in the Zip64 part
constexpr uint16_t kExtra64 = 1;
constexpr uint64_t kMaxDirectoryBytes = uint64_t{64} << 20;

core::Error corrupt_zip(const core::ReadableFile& file, std::string problem, std::string actual = "") {
  return {core::ErrorCode::kCorruptData,
          {.problem = std::move(problem),
           .where = file.path(),
           .actual = std::move(actual),
           .remedy = "the file is damaged or incomplete: get or write it again"}};
}

std::string read(const core::ReadableFile& file, uint64_t offset, uint64_t size) {
  if (offset > file.size() || size > file.size() - offset) throw corrupt_zip(file, "zip archive refers behind its end");
  std::string bytes(size, '\0');
  file.read_at(offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

template <typename T>
T number(std::string_view bytes, uint64_t offset) {
  return load_little_endian<T>(bytes.data() + offset);
}

struct Directory {
  uint64_t offset = 0, size = 0, entries = 0;
};

Directory find_directory(const core::ReadableFile& file) {
  const uint64_t tail = std::min(file.size(), kLocatorBytes + kEndBytes + kLongestComment), first = file.size() - tail;
  const std::string bytes = read(file, first, tail);
  for (uint64_t i = tail < kEndBytes ? 0 : tail - kEndBytes + 1; i > 0; --i) {
    const uint64_t at = i - 1;
    if (number<uint32_t>(bytes, at) != kEnd) continue;
    if (number<uint16_t>(bytes, at + 20) != tail - at - kEndBytes) continue;  // a comment that looks like the end
    Directory found{.offset = number<uint32_t>(bytes, at + 16),
                    .size = number<uint32_t>(bytes, at + 12),
                    .entries = number<uint16_t>(bytes, at + 10)};
    if (at >= kLocatorBytes && number<uint32_t>(bytes, at - kLocatorBytes) == kLocator64) {
      const std::string end = read(file, number<uint64_t>(bytes, at - kLocatorBytes + 8), kEnd64Bytes);
      if (number<uint32_t>(end, 0) != kEnd64) throw corrupt_zip(file, "zip archive has a broken Zip64 directory");
      found = {
          .offset = number<uint64_t>(end, 48), .size = number<uint64_t>(end, 40), .entries = number<uint64_t>(end, 32)};
    }
    return found;
  }
  throw corrupt_zip(file, "zip archive has no directory at its end");
}

// The member's size and place from the Zip64 part of an entry's extra fields, which has those that did not fit.
void read_extra64(std::string_view extra, ZipMember& member, uint64_t& packed, uint64_t& header) {
  while (extra.size() >= 4) {
    const auto kind = number<uint16_t>(extra, 0), size = number<uint16_t>(extra, 2);
    extra.remove_prefix(4);
    if (size > extra.size()) return;
    std::string_view field = extra.substr(0, size);
    extra.remove_prefix(size);
    if (kind != kExtra64) continue;
    for (uint64_t* const value : {&member.size, &packed, &header}) {
      if (*value != kIn64 || field.size() < 8) continue;
      *value = number<uint64_t>(field, 0);
      field.remove_prefix(8);
    }
  }
}

}  // namespace

bool looks_like_zip(const core::ReadableFile& file) {
  return file.size() >= 4 && number<uint32_t>(read(file, 0, 4), 0) == kMember;
}

std::vector<ZipMember> read_zip_directory(const core::ReadableFile& file) {
  const Directory directory = find_directory(file);
  if (directory.size > kMaxDirectoryBytes) throw corrupt_zip(file, "zip archive's directory is impossibly large");
  const std::string bytes = read(file, directory.offset, directory.size);
  std::vector<ZipMember> members;
  uint64_t at = 0;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    if (bytes.size() - at < kEntryBytes || number<uint32_t>(bytes, at) != kEntry) {
      throw corrupt_zip(file, "zip archive's directory is broken", fmt::format("entry {}", i));
    }
    const auto flags = number<uint16_t>(bytes, at + 8), method = number<uint16_t>(bytes, at + 10);
    const uint64_t name_bytes = number<uint16_t>(bytes, at + 28), extra_bytes = number<uint16_t>(bytes, at + 30),
                   comment_bytes = number<uint16_t>(bytes, at + 32);
    if (name_bytes + extra_bytes + comment_bytes > bytes.size() - at - kEntryBytes) {
      throw corrupt_zip(file, "zip archive's directory is broken", fmt::format("entry {}", i));
    }
    ZipMember member{.name = bytes.substr(at + kEntryBytes, name_bytes), .size = number<uint32_t>(bytes, at + 24)};
    uint64_t packed = number<uint32_t>(bytes, at + 20), header = number<uint32_t>(bytes, at + 42);
    read_extra64(std::string_view(bytes).substr(at + kEntryBytes + name_bytes, extra_bytes), member, packed, header);
    if ((flags & 1) != 0 || method != 0 || packed != member.size) {
      throw core::Error(core::ErrorCode::kUnsupported,
                        {.problem = "zip archive has a compressed or encrypted member",
                         .where = file.path(),
                         .expected = "members that are stored as they are, as torch.save does",
                         .actual = member.name.substr(0, 80),
                         .remedy = "load it in Python and save the weights: torch.save(model.state_dict(), path)"});
    }
    const std::string local = read(file, header, kMemberBytes);
    if (number<uint32_t>(local, 0) != kMember)
      throw corrupt_zip(file, "zip archive's directory points beside its members");
    member.offset = header + kMemberBytes + number<uint16_t>(local, 26) + number<uint16_t>(local, 28);
    if (member.offset > file.size() || member.size > file.size() - member.offset) {
      throw corrupt_zip(file, "a zip archive's member ends behind the file", member.name.substr(0, 80));
    }
    members.push_back(std::move(member));
    at += kEntryBytes + name_bytes + extra_bytes + comment_bytes;
  }
  return members;
}

}  // namespace trainyard::formats
