#include "trainyard/formats/tensors/sstable.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/formats/containers/corrupt_file.h"
#include "trainyard/formats/containers/little_endian.h"
#include "trainyard/formats/records/tfrecord.h"
#include "trainyard/formats/tensors/snappy.h"
#include "trainyard/formats/tensors/varint.h"

namespace trainyard::formats {
namespace {

constexpr uint64_t kFooterBytes = 48, kMagic = 0xdb4775248b80fb57;
constexpr uint64_t kTrailerBytes = 5;  // of a block: its type, and the masked CRC32C of content and type
enum BlockType : char { kPlain = 0, kSnappy = 1 };

using Entry = std::function<void(std::string_view key, std::string_view value)>;

struct BlockHandle {
  uint64_t offset = 0, size = 0;  // bytes, without the trailer
};

std::optional<BlockHandle> take_handle(std::string_view& bytes) {
  const std::optional<uint64_t> offset = take_varint(bytes), size = offset ? take_varint(bytes) : std::nullopt;
  if (!size) return std::nullopt;
  return BlockHandle{*offset, *size};
}

core::Error corrupt(const core::ReadableFile& file, uint64_t offset, std::string problem, std::string expected = "",
                    std::string actual = "") {
  return corrupt_file(file, offset,
                      {.problem = std::move(problem),
                       .expected = std::move(expected),
                       .actual = std::move(actual),
                       .remedy = "copy the file again, or take another checkpoint"});
}

// The blocks of a file, which must follow each other, so that none is read twice.
class BlockReader {
 public:
  explicit BlockReader(const core::ReadableFile& file) : file_(file), end_(file.size() - kFooterBytes) {}

  std::string read(BlockHandle handle) const {
    const uint64_t room = handle.offset <= end_ ? end_ - handle.offset : 0;
    if (room < kTrailerBytes || handle.size > room - kTrailerBytes) {
      throw corrupt(file_, handle.offset, "a block of the table lies outside of it",
                    fmt::format("{} bytes at most", room), fmt::format("{} and {}", handle.size, kTrailerBytes));
    }
    std::string block(handle.size + kTrailerBytes, '\0');
    file_.read_at(handle.offset, std::as_writable_bytes(std::span(block)));
    const std::string_view checked = std::string_view(block).substr(0, handle.size + 1);
    const auto stored = load_little_endian<uint32_t>(block.data() + handle.size + 1);
    if (const uint32_t computed = masked_crc32c(checked); computed != stored) {
      throw corrupt(file_, handle.offset, "checksum of a block of the table differs",
                    fmt::format("masked crc32c {:#010x}", stored), fmt::format("{:#010x}", computed));
    }
    const char type = block[handle.size];
    block.resize(handle.size);
    if (type == kPlain) return block;
    if (type != kSnappy) {
      throw corrupt(file_, handle.offset, "a block of the table has an unknown compression", "none (0) or Snappy (1)",
                    fmt::format("{}", static_cast<int>(type)));
    }
    core::Result<std::string> plain = decompress_snappy(block);
    if (!plain.ok()) throw corrupt(file_, handle.offset, plain.error().detail().problem);
    return std::move(plain).value();
  }

  // Calls `entry` for each entry of a block that was read from `offset`. `key` is the last key before the block, and
  // becomes its last one.
  void parse(std::string_view block, uint64_t offset, std::string& key, const Entry& entry) const {
    const auto malformed = [&](const char* problem) { return corrupt(file_, offset, problem); };
    if (block.size() < sizeof(uint32_t)) throw malformed("a block of the table is too short");
    const uint64_t restarts = load_little_endian<uint32_t>(block.data() + block.size() - sizeof(uint32_t));
    const uint64_t room = block.size() / sizeof(uint32_t) - 1;
    if (restarts > room) throw malformed("a block of the table has impossibly many restart points");
    block.remove_suffix((restarts + 1) * sizeof(uint32_t));
    std::string current;
    for (bool first = true; !block.empty(); first = false) {
      const std::optional<uint64_t> shared = take_varint(block), more = take_varint(block), value = take_varint(block);
      if (!shared || !more || !value || *shared > current.size() || *more > block.size() ||
          *value > block.size() - *more) {
        throw malformed("an entry of the table is cut");
      }
      if (*shared + *more > kMaxSstableKeyBytes) throw malformed("a key of the table is too long");
      current.resize(*shared);
      current += block.substr(0, *more);
      const bool begins_file = first && begins_;
      if (!begins_file && current <= key) throw malformed("the keys of the table are out of order");
      begins_ = false;
      key = current;
      entry(key, block.substr(*more, *value));
      block.remove_prefix(*more + *value);
    }
  }

 private:
  const core::ReadableFile& file_;
  uint64_t end_;
  mutable bool begins_ = true;
};

}  // namespace

void read_sstable(const core::ReadableFile& file, const Entry& entry) {
  if (file.size() < kFooterBytes) throw corrupt(file, 0, "file is too short for a table");
  const uint64_t footer_at = file.size() - kFooterBytes;
  std::string footer(kFooterBytes, '\0');
  file.read_at(footer_at, std::as_writable_bytes(std::span(footer)));
  const auto magic = load_little_endian<uint64_t>(footer.data() + kFooterBytes - sizeof(uint64_t));
  if (magic != kMagic) {
    throw corrupt(file, footer_at, "this is no table of TensorFlow, or it is cut", fmt::format("{:#018x}", kMagic),
                  fmt::format("{:#018x}", magic));
  }
  std::string_view handles = std::string_view(footer).substr(0, kFooterBytes - sizeof(uint64_t));
  const std::optional<BlockHandle> meta = take_handle(handles), index = meta ? take_handle(handles) : std::nullopt;
  if (!index) throw corrupt(file, footer_at, "the table's footer is malformed");
  const std::string index_block = BlockReader(file).read(*index);
  const BlockReader blocks(file);
  std::string key, separator;
  uint64_t end = 0;
  BlockReader(file).parse(index_block, index->offset, separator, [&](std::string_view, std::string_view place) {
    const std::optional<BlockHandle> handle = take_handle(place);
    if (!handle) throw corrupt(file, index->offset, "an entry of the table's index is malformed");
    if (handle->offset < end) throw corrupt(file, handle->offset, "blocks of the table overlap");
    const std::string block = blocks.read(*handle);
    end = handle->offset + handle->size + kTrailerBytes;
    blocks.parse(block, handle->offset, key, entry);
  });
}

}  // namespace trainyard::formats
