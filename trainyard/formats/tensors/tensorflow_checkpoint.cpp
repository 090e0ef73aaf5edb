#include "trainyard/formats/tensors/tensorflow_checkpoint.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/crc32c.h"
#include "trainyard/formats/containers/little_endian.h"
#include "trainyard/formats/records/tfrecord.h"
#include "trainyard/formats/tensors/sstable.h"
#include "trainyard/formats/tensors/tensorflow_bundle.h"

namespace trainyard::formats {
namespace {

// Names share their beginnings in the index: they may be this many times as long as it, at most.
constexpr uint64_t kNamesPerIndexByte = 100;
constexpr std::string_view kGlobalStep = "global_step";

core::Error corrupt_checkpoint(const std::string& prefix, std::string_view tensor, std::string problem,
                               std::string expected = "", std::string actual = "") {
  return {core::ErrorCode::kCorruptData,
          {.problem = std::move(problem),
           .where = tensor_place(prefix, tensor),
           .expected = std::move(expected),
           .actual = std::move(actual),
           .remedy = "copy the checkpoint again, or take another one"}};
}

// The shards of a checkpoint one after the other, and behind them the bytes of what is held in memory.
class JoinedFile : public core::ReadableFile {
 public:
  explicit JoinedFile(std::string path) : path_(std::move(path)) {}

  const std::string& path() const override { return path_; }
  uint64_t size() const override { return shard_bytes_ + memory_.size(); }
  void read_at(uint64_t offset, std::span<std::byte> out) const override {
    const uint64_t behind = offset <= size() ? size() - offset : 0;
    if (out.size() > behind) {
      throw core::Error(core::ErrorCode::kCorruptData, {.problem = "file ends too early", .where = path_});
    }
    if (out.empty()) return;
    if (offset >= shard_bytes_) {
      const auto bytes = std::as_bytes(std::span(memory_)).subspan(offset - shard_bytes_, out.size());
      std::copy(bytes.begin(), bytes.end(), out.begin());
      return;
    }
    const auto after = std::upper_bound(shards_.begin(), shards_.end(), offset,
                                        [](uint64_t at, const Shard& shard) { return at < shard.begin; });
    const Shard& shard = *std::prev(after);
    shard.file->read_at(offset - shard.begin, out);  // a tensor is in one shard
  }

  // Returns where the shard begins.
  uint64_t add_shard(std::unique_ptr<core::ReadableFile> file) {
    shards_.push_back({shard_bytes_, std::move(file)});
    shard_bytes_ += shards_.back().file->size();
    return shards_.back().begin;
  }
  // Returns where the bytes begin. No shard is added behind this call.
  uint64_t add_bytes(std::string_view bytes) {
    const uint64_t begin = size();
    memory_ += bytes;
    return begin;
  }

 private:
  struct Shard {
    uint64_t begin = 0;
    std::unique_ptr<core::ReadableFile> file;
  };
  std::string path_;
  std::vector<Shard> shards_;  // one that is empty begins where the next does, which is then the last of its begin
  uint64_t shard_bytes_ = 0;
  std::string memory_;
};

struct Index {
  BundleHeader header{};
  std::map<std::string, BundleEntry, std::less<>> entries{};
};

Index read_index(const core::ReadableFile& file) {
  Index index;
  bool has_header = false;
  uint64_t names_left = file.size() * kNamesPerIndexByte;
  read_sstable(file, [&](std::string_view key, std::string_view value) {
    const auto refuse = [&](const core::Error& error) {
      return corrupt_checkpoint(file.path(), key, error.detail().problem, error.detail().expected,
                                error.detail().actual);
    };
    if (!has_header) {
      if (!key.empty()) throw corrupt_checkpoint(file.path(), "", "the index has no header");
      core::Result<BundleHeader> header = parse_bundle_header(value);
      if (!header.ok()) throw refuse(header.error());
      index.header = header.value();
      has_header = true;
      return;
    }
    if (key.size() > names_left) throw corrupt_checkpoint(file.path(), "", "the names are impossibly long");
    names_left -= key.size();
    core::Result<BundleEntry> entry = parse_bundle_entry(value);
    if (!entry.ok()) throw refuse(entry.error());
    index.entries.emplace_hint(index.entries.end(), key, std::move(entry).value());
  });
  if (!has_header) throw corrupt_checkpoint(file.path(), "", "the index is empty");
  return index;
}

// Calls `use` with all elements of a part of an array in C order, as the index of an element in the whole one.
template <typename Use>
void for_each_place(const std::vector<int64_t>& shape, const BundleSlice& slice, const Use& use) {
  std::vector<int64_t> at;
  for (const BundleExtent& extent : slice) at.push_back(extent.start);
  for (;;) {
    int64_t place = 0;
    for (size_t i = 0; i < shape.size(); ++i) place = place * shape[i] + at[i];
    use(static_cast<uint64_t>(place));
    size_t i = shape.size();
    for (; i > 0; --i) {
      if (++at[i - 1] < slice[i - 1].start + slice[i - 1].length) break;
      at[i - 1] = slice[i - 1].start;
    }
    if (i == 0) return;
  }
}

class CheckpointReader {
 public:
  CheckpointReader(const std::string& prefix, Index index, const OpenShard& open_shard)
      : prefix_(prefix), index_(std::move(index)), file_(std::make_unique<JoinedFile>(prefix)) {
    for (const auto& [name, entry] : index_.entries) {
      if (entry.slices.empty()) open(name, entry, open_shard);
    }
    refuse_overlaps();
  }

  TensorFlowCheckpoint read() && {
    std::vector<StoredTensor> tensors;
    std::vector<UnreadTensor> unread;
    for (const auto& [name, entry] : index_.entries) {
      const std::optional<TensorType> type = tensor_type_of_tensorflow(entry.type);
      if (!name.empty() && name.front() == '\0') continue;  // a part, which the whole reads
      if (!type) {
        unread.push_back({name, tensorflow_type_name(entry.type), entry.shape});
      } else if (entry.slices.empty()) {
        tensors.push_back(read_tensor(name, entry, *type));
      } else {
        tensors.push_back(join_parts(name, entry, *type));
      }
    }
    for (const auto& [name, entry] : index_.entries) {
      if (!name.empty() && name.front() == '\0' && !joined_.contains(name)) {
        throw corrupt_checkpoint(prefix_, name.substr(1), "a part belongs to no partitioned variable");
      }
    }
    const std::optional<int64_t> step = global_step(tensors);
    std::map<std::string, std::string> metadata;
    if (step) metadata.emplace(kGlobalStep, fmt::format("{}", *step));
    TensorFile file(std::move(file_), std::move(tensors), std::move(metadata), TensorFileFormat::kTensorFlow);
    return {.prefix = prefix_, .tensors = std::move(file), .unread = std::move(unread), .global_step = step};
  }

 private:
  // The tensors have been read, so their bytes are verified, and in little-endian order.
  std::optional<int64_t> global_step(const std::vector<StoredTensor>& tensors) const {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [](const StoredTensor& tensor) { return tensor.name == kGlobalStep; });
    if (found == tensors.end() || found->count() != 1) return std::nullopt;
    if (found->type != TensorType::kInt64 && found->type != TensorType::kInt32) return std::nullopt;
    const std::string bytes = bytes_of(found->offset, tensor_type_bytes(found->type));
    return found->type == TensorType::kInt64 ? load_little_endian<int64_t>(bytes.data())
                                             : load_little_endian<int32_t>(bytes.data());
  }

  // Opens the shard of an entry and checks that the entry is inside of it.
  void open(const std::string& name, const BundleEntry& entry, const OpenShard& open_shard) {
    if (entry.shard < 0 || entry.shard >= index_.header.shards) {
      throw corrupt_checkpoint(prefix_, name, "tensor is in a shard that the checkpoint does not have",
                               fmt::format("less than {}", index_.header.shards), fmt::format("{}", entry.shard));
    }
    auto found = shards_.find(entry.shard);
    if (found == shards_.end()) {
      auto shard = open_shard(entry.shard, index_.header.shards);
      const uint64_t size = shard->size();
      found = shards_.emplace(entry.shard, ShardPlace{file_->add_shard(std::move(shard)), size}).first;
    }
    const uint64_t size = found->second.size;
    if (entry.offset < 0 || entry.size < 0 || static_cast<uint64_t>(entry.offset) > size ||
        static_cast<uint64_t>(entry.size) > size - static_cast<uint64_t>(entry.offset)) {
      throw corrupt_checkpoint(prefix_, name, "tensor ends behind its shard", fmt::format("{} bytes", size),
                               fmt::format("{} from {}", entry.size, entry.offset));
    }
  }

  // No two tensors share bytes, so that all together are no larger than the files.
  void refuse_overlaps() const {
    std::vector<std::pair<uint64_t, std::pair<uint64_t, std::string_view>>> places;  // begin, end, name
    for (const auto& [name, entry] : index_.entries) {
      if (!entry.slices.empty() || entry.size == 0) continue;
      const uint64_t begin = place_of(entry);
      places.push_back({begin, {begin + static_cast<uint64_t>(entry.size), name}});
    }
    std::sort(places.begin(), places.end());
    for (size_t i = 1; i < places.size(); ++i) {
      if (places[i].first < places[i - 1].second.first) {
        throw corrupt_checkpoint(prefix_, std::string(places[i].second.second), "tensor overlaps another");
      }
    }
  }

  uint64_t place_of(const BundleEntry& entry) const {
    return shards_.at(entry.shard).begin + static_cast<uint64_t>(entry.offset);
  }

  // Checks shape, size and checksum of an entry without parts, whose elements are then at the result's offset.
  StoredTensor read_tensor(const std::string& name, const BundleEntry& entry, TensorType type) {
    StoredTensor tensor{.name = name,
                        .type = type,
                        .shape = entry.shape,
                        .strides = contiguous_strides(entry.shape),
                        .offset = place_of(entry)};
    check_stored_tensor(tensor, tensor.offset, tensor.offset + static_cast<uint64_t>(entry.size), prefix_);
    const uint64_t bytes = static_cast<uint64_t>(tensor.count()) * tensor_type_bytes(type);
    if (bytes != static_cast<uint64_t>(entry.size)) {
      throw corrupt_checkpoint(prefix_, name, "tensor's shape and size disagree",
                               fmt::format("{} bytes of {}", bytes, describe(tensor)), fmt::format("{}", entry.size));
    }
    verify(name, entry);
    if (index_.header.big_endian && tensor_type_bytes(type) > 1) {
      std::string content = bytes_of(tensor.offset, bytes);
      const size_t width = tensor_type_bytes(type);
      for (size_t i = 0; i < content.size(); i += width) {
        std::reverse(content.begin() + static_cast<std::ptrdiff_t>(i),
                     content.begin() + static_cast<std::ptrdiff_t>(i + width));
      }
      tensor.offset = file_->add_bytes(content);
    }
    return tensor;
  }

  std::string bytes_of(uint64_t offset, uint64_t size) const {
    std::string content(size, '\0');
    file_->read_at(offset, std::as_writable_bytes(std::span(content)));
    return content;
  }

  void verify(const std::string& name, const BundleEntry& entry) {
    constexpr uint64_t kPiece = uint64_t{1} << 20;
    std::vector<std::byte> piece(std::min<uint64_t>(kPiece, static_cast<uint64_t>(entry.size)));
    uint32_t crc = 0;
    for (uint64_t done = 0, all = static_cast<uint64_t>(entry.size); done < all;) {
      const std::span<std::byte> part = std::span(piece).first(std::min<uint64_t>(kPiece, all - done));
      file_->read_at(place_of(entry) + done, part);
      crc = core::crc32c(part, crc);
      done += part.size();
    }
    if (const uint32_t computed = mask_crc32c(crc); computed != entry.checksum) {
      throw corrupt_checkpoint(prefix_, name, "checksum of the tensor differs",
                               fmt::format("masked crc32c {:#010x}", entry.checksum),
                               fmt::format("{:#010x}", computed));
    }
  }

  // Returns the part with its lengths, checked to lie inside of the whole.
  BundleSlice settled_part(const std::string& name, const BundleEntry& whole, const BundleSlice& part) const {
    BundleSlice settled = part;
    bool fits = part.size() == whole.shape.size();
    for (size_t i = 0; fits && i < part.size(); ++i) {
      if (part[i].length == -1) settled[i] = {0, whole.shape[i]};
      fits = settled[i].start >= 0 && settled[i].length >= 1 && settled[i].start < whole.shape[i] &&
             settled[i].length <= whole.shape[i] - settled[i].start;
    }
    if (!fits) throw corrupt_checkpoint(prefix_, name, "a part lies outside of its variable");
    return settled;
  }

  StoredTensor join_parts(const std::string& name, const BundleEntry& whole, TensorType type) {
    struct Part {
      BundleSlice slice;
      StoredTensor tensor;
    };
    std::vector<Part> parts;
    uint64_t elements = 0;
    for (const BundleSlice& slice : whole.slices) {
      const std::string key = bundle_slice_key(name, slice);
      const auto found = index_.entries.find(key);
      if (found == index_.entries.end() || found->second.type != whole.type || !found->second.slices.empty() ||
          !joined_.insert(key).second) {
        throw corrupt_checkpoint(prefix_, name, "a part of the variable is missing, or of another type");
      }
      Part part{settled_part(name, whole, slice), read_tensor(name, found->second, type)};
      std::vector<int64_t> sizes;
      for (const BundleExtent& extent : part.slice) sizes.push_back(extent.length);
      if (sizes != part.tensor.shape) {
        throw corrupt_checkpoint(prefix_, name, "a part of the variable has another shape",
                                 fmt::format("[{}]", fmt::join(sizes, ", ")), describe(part.tensor));
      }
      elements += static_cast<uint64_t>(part.tensor.count());
      parts.push_back(std::move(part));
    }
    const uint64_t width = tensor_type_bytes(type);
    // The parts are inside of the files, so the whole is no larger than those.
    StoredTensor tensor{.name = name, .type = type, .shape = whole.shape, .strides = contiguous_strides(whole.shape)};
    check_stored_tensor(tensor, 0, elements * width, prefix_);
    std::string content(elements * width, '\0');
    std::vector<bool> filled(elements);
    bool complete = static_cast<uint64_t>(tensor.count()) == elements;
    for (size_t i = 0; complete && i < parts.size(); ++i) {
      const std::string bytes =
          bytes_of(parts[i].tensor.offset, static_cast<uint64_t>(parts[i].tensor.count()) * width);
      size_t next = 0;
      for_each_place(whole.shape, parts[i].slice, [&](uint64_t place) {
        complete = complete && !filled[place];
        filled[place] = true;
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(next), width,
                    content.begin() + static_cast<std::ptrdiff_t>(place * width));
        next += width;
      });
    }
    if (!complete) {
      throw corrupt_checkpoint(prefix_, name, "the parts of the variable do not cover it once", describe(tensor));
    }
    tensor.offset = file_->add_bytes(content);
    return tensor;
  }

  struct ShardPlace {
    uint64_t begin = 0, size = 0;
  };

  const std::string prefix_;
  const Index index_;
  std::unique_ptr<JoinedFile> file_;
  std::map<int64_t, ShardPlace> shards_;
  std::set<std::string, std::less<>> joined_;  // keys of parts that a variable has taken
};

}  // namespace

TensorFlowCheckpoint read_tensorflow_checkpoint(const core::ReadableFile& index, const std::string& prefix,
                                                const OpenShard& open_shard) {
  return CheckpointReader(prefix, read_index(index), open_shard).read();
}

TensorFlowCheckpoint open_tensorflow_checkpoint(const std::string& path, core::FileSystem& files) {
  const std::string prefix = find_tensorflow_checkpoint(path, files);
  const auto index = files.open_read(prefix + ".index");
  return read_tensorflow_checkpoint(*index, prefix, [&](int64_t shard, int64_t shards) {
    const std::string name = fmt::format("{}.data-{:05}-of-{:05}", prefix, shard, shards);
    if (!files.exists(name)) {
      throw core::Error(core::ErrorCode::kNotFound, {.problem = "a file of the checkpoint is missing",
                                                     .where = name,
                                                     .remedy = "copy all files of the checkpoint"});
    }
    return files.open_read(name);
  });
}

}  // namespace trainyard::formats
