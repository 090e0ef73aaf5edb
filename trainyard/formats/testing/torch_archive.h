// The archive that torch.save would make of a pickle, so that tests and fuzzers can choose the pickle alone.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/formats/containers/little_endian.h"

namespace trainyard::formats {

// The 26 bytes that a member's own header and its entry in the directory share, and its name.
inline void append_member(std::string& out, const std::string& name, uint32_t size) {
  append_little_endian<uint16_t>(out, 0);  // version
  append_little_endian<uint16_t>(out, 0);  // flags
  append_little_endian<uint16_t>(out, 0);  // stored as it is
  append_little_endian<uint64_t>(out, 0);  // time, date, checksum
  append_little_endian<uint32_t>(out, size);
  append_little_endian<uint32_t>(out, size);
  append_little_endian<uint16_t>(out, static_cast<uint16_t>(name.size()));
  append_little_endian<uint16_t>(out, 0);  // extra fields
}

// An archive of these members, each a name and its content.
inline std::string archive_of_members(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string content, directory;
  for (const auto& [name, data] : members) {
    append_little_endian<uint32_t>(directory, 0x02014b50);
    append_little_endian<uint16_t>(directory, 0);  // written by
    append_member(directory, name, static_cast<uint32_t>(data.size()));
    directory.append(10, '\0');  // comment, disk, attributes
    append_little_endian<uint32_t>(directory, static_cast<uint32_t>(content.size()));
    directory += name;
    append_little_endian<uint32_t>(content, 0x04034b50);
    append_member(content, name, static_cast<uint32_t>(data.size()));
    content += name + data;
  }
  const auto begin = static_cast<uint32_t>(content.size());
  content += directory;
  append_little_endian<uint32_t>(content, 0x06054b50);
  append_little_endian<uint32_t>(content, 0);  // disks
  append_little_endian<uint16_t>(content, static_cast<uint16_t>(members.size()));
  append_little_endian<uint16_t>(content, static_cast<uint16_t>(members.size()));
  append_little_endian<uint32_t>(content, static_cast<uint32_t>(directory.size()));
  append_little_endian<uint32_t>(content, begin);
  append_little_endian<uint16_t>(content, 0);  // comment
  return content;
}

// torch.save's archive of this pickle, with two storages of 64 bytes.
inline std::string archive_of(const std::string& pickle) {
  return archive_of_members(
      {{"a/data.pkl", pickle}, {"a/data/0", std::string(64, '\1')}, {"a/data/1", std::string(64, '\2')}});
}

}  // namespace trainyard::formats
