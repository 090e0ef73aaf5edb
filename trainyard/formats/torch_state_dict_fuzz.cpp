// A file as PyTorch's state dict, and the bytes as the pickle of one: an archive around them, which a fuzzer does not
// keep whole. Each tensor that is found can be read.
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "trainyard/formats/hostile_input_for_test.h"
#include "trainyard/formats/little_endian.h"
#include "trainyard/formats/testdata_for_test.h"
#include "trainyard/formats/torch_state_dict.h"

namespace trainyard::formats {
namespace {

// The 26 bytes that a member's own header and its entry in the directory share, and its name.
void append_member(std::string& out, const std::string& name, uint32_t size) {
  append_little_endian<uint16_t>(out, 0);  // version
  append_little_endian<uint16_t>(out, 0);  // flags
  append_little_endian<uint16_t>(out, 0);  // stored as it is
  append_little_endian<uint64_t>(out, 0);  // time, date, checksum
  append_little_endian<uint32_t>(out, size);
  append_little_endian<uint32_t>(out, size);
  append_little_endian<uint16_t>(out, static_cast<uint16_t>(name.size()));
  append_little_endian<uint16_t>(out, 0);  // extra fields
}

// torch.save's archive of this pickle, with two storages of 64 bytes.
std::string archive_of(const std::string& pickle) {
  const std::pair<std::string, std::string> members[] = {
      {"a/data.pkl", pickle}, {"a/data/0", std::string(64, '\1')}, {"a/data/1", std::string(64, '\2')}};
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
  append_little_endian<uint16_t>(content, std::size(members));
  append_little_endian<uint16_t>(content, std::size(members));
  append_little_endian<uint32_t>(content, static_cast<uint32_t>(directory.size()));
  append_little_endian<uint32_t>(content, begin);
  append_little_endian<uint16_t>(content, 0);  // comment
  return content;
}

void read(const std::string& content) {
  expect_value_or_error([&] {
    const TensorFile file(std::make_unique<MemoryFile>(content), read_torch_state_dict(MemoryFile(content)));
    for (const StoredTensor& tensor : file.tensors()) {
      if (file.read_floats(tensor).size() != static_cast<size_t>(tensor.count())) std::abort();
    }
  });
}

}  // namespace
}  // namespace trainyard::formats

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::formats;
  const std::string content(reinterpret_cast<const char*>(bytes), size);
  read(content);
  read(archive_of(content));
  return 0;
}
