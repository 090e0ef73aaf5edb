#include "trainyard/formats/containers/tar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "trainyard/formats/containers/corrupt_file.h"

namespace trainyard::formats {
namespace {

// Fields of a header block (POSIX.1-2001, pax): offset and length.
struct Field {
  size_t begin, length;
};
constexpr uint64_t kBlock = 512;
constexpr Field kName{0, 100}, kMode{100, 8}, kSize{124, 12}, kTime{136, 12}, kChecksum{148, 8}, kMagic{257, 8},
    kPrefix{345, 155};
constexpr size_t kType = 156;
// The longest content of headers that describe the next one: long names, pax records. Paths have at most 4 KiB.
constexpr uint64_t kMaxExtraBytes = uint64_t{64} << 10;
constexpr size_t kPieceBytes = size_t{64} << 10;  // read at a time of what is behind the end

using Block = std::array<char, kBlock>;

core::Error corrupt_archive(const core::ReadableFile& file, uint64_t offset, std::string problem,
                            std::string expected = "", std::string actual = "") {
  return corrupt_file(file, offset,
                      {.problem = std::move(problem),
                       .expected = std::move(expected),
                       .actual = std::move(actual),
                       .remedy = "copy or write the archive again"});
}

std::string_view text_of(const Block& block, Field field) {
  const std::string_view text(block.data() + field.begin, field.length);
  return text.substr(0, text.find('\0'));
}

// Octal digits between blanks, or GNU's binary form, whose first bit is set. Nothing for neither.
std::optional<uint64_t> number_of(const Block& block, Field field) {
  const std::string_view bytes(block.data() + field.begin, field.length);
  if ((bytes[0] & 0x80) != 0) {
    uint64_t value = static_cast<unsigned char>(bytes[0]) & 0x7f;
    for (const char byte : bytes.substr(1)) {
      if (value >> 56 != 0) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(byte);
    }
    return value;
  }
  std::string_view digits = text_of(block, field);
  digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
  digits = digits.substr(0, digits.find(' '));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// The sum of a header's bytes, its own field counted as blanks.
uint64_t checksum_of(const Block& block) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    const bool own = i >= kChecksum.begin && i < kChecksum.begin + kChecksum.length;
    sum += own ? ' ' : static_cast<unsigned char>(block[i]);
  }
  return sum;
}

// What pax headers and GNU's long names say of the next file.
struct Extra {
  std::string name;
  std::optional<uint64_t> size;
};

// "length key=value\n", one behind the other.
void parse_pax(std::string_view records, Extra& extra, const core::ReadableFile& file, uint64_t offset) {
  while (!records.empty()) {
    size_t length = 0;
    const auto [end, error] = std::from_chars(records.data(), records.data() + records.size(), length);
    const auto digits = static_cast<size_t>(end - records.data());
    if (error != std::errc() || length > records.size() || length < digits + 3 || *end != ' ' ||
        records[length - 1] != '\n') {
      throw corrupt_archive(file, offset, "pax header is malformed");
    }
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    records.remove_prefix(length);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) throw corrupt_archive(file, offset, "pax header has a record without '='");
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") extra.name = value;
    if (key == "size") {
      uint64_t size = 0;
      const auto parsed = std::from_chars(value.data(), value.data() + value.size(), size);
      if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size()) {
        throw corrupt_archive(file, offset, "pax header has a size that is no number");
      }
      extra.size = size;
    }
    if (key.starts_with("GNU.sparse.")) throw corrupt_archive(file, offset, "sparse files in archives are not read");
  }
}

std::string full_name(const Block& block) {
  const std::string name(text_of(block, kName));
  // GNU's own format has other fields where POSIX has the prefix.
  const bool posix = std::string_view(block.data() + kMagic.begin, 6) == std::string_view("ustar\0", 6);
  const std::string_view prefix = posix ? text_of(block, kPrefix) : std::string_view();
  return prefix.empty() ? name : fmt::format("{}/{}", prefix, name);
}

class TarIndexer {
 public:
  explicit TarIndexer(const core::ReadableFile& file) : file_(file) {}

  std::vector<TarMember> run() {
    Block block;
    while (offset_ < file_.size()) {
      if (!read_header(block)) {
        require_padding();
        break;
      }
      take_member(block);
    }
    return std::move(members_);
  }

 private:
  // False for the end's block of zeros.
  bool read_header(Block& block) const {
    if (file_.size() - offset_ < kBlock) {
      throw corrupt_archive(file_, offset_, "archive ends within a header", fmt::format("{} bytes", kBlock),
                            fmt::format("{}", file_.size() - offset_));
    }
    file_.read_at(offset_, std::as_writable_bytes(std::span(block)));
    if (std::all_of(block.begin(), block.end(), [](char byte) { return byte == 0; })) return false;
    const std::optional<uint64_t> stored = number_of(block, kChecksum);
    if (const uint64_t computed = checksum_of(block); stored != computed) {
      throw corrupt_archive(file_, offset_, "checksum of the archive's header differs",
                            stored ? fmt::format("{}", *stored) : "octal digits", fmt::format("{}", computed));
    }
    return true;
  }

  // Only zeros may follow the end's block of zeros. Anything else is a second archive (`cat a.tar b.tar`) or, behind a
  // hole that a broken copy has left, the rest of this one, whose files would be lost without a word.
  void require_padding() const {
    std::vector<char> piece(kPieceBytes);
    for (uint64_t begin = offset_ + kBlock; begin < file_.size(); begin += piece.size()) {
      piece.resize(std::min<uint64_t>(piece.size(), file_.size() - begin));
      file_.read_at(begin, std::as_writable_bytes(std::span(piece)));
      const auto other = std::find_if(piece.begin(), piece.end(), [](char byte) { return byte != 0; });
      if (other == piece.end()) continue;
      throw corrupt_file(file_, begin + static_cast<uint64_t>(other - piece.begin()),
                         {.problem = "archive continues behind its end",
                          .expected = fmt::format("zeros from offset {} on", offset_),
                          .actual = "other bytes",
                          .remedy = "copy the archive again; tar --concatenate joins several"});
    }
  }

  void take_member(const Block& block) {
    const char type = block[kType];
    std::optional<uint64_t> size = number_of(block, kSize);
    const bool tells_of_next = type == 'x' || type == 'g' || type == 'L' || type == 'K';
    if (!tells_of_next && extra_.size) size = extra_.size;
    const uint64_t content = offset_ + kBlock;
    if (!size || *size > file_.size() - content) {
      throw corrupt_archive(file_, offset_, "file in the archive is longer than the rest of it",
                            size ? fmt::format("{} bytes", *size) : "a size",
                            fmt::format("{}", file_.size() - content));
    }
    if (tells_of_next) {
      read_extra(type, content, *size);
    } else {
      if (type == 'S') throw corrupt_archive(file_, offset_, "sparse files in archives are not read");
      if (type == '0' || type == '\0' || type == '7') {
        members_.push_back({extra_.name.empty() ? full_name(block) : extra_.name, content, *size});
      }
      extra_ = {};
    }
    // The last file's padding may be missing.
    offset_ = std::min(content + (*size + kBlock - 1) / kBlock * kBlock, file_.size());
  }

  void read_extra(char type, uint64_t content, uint64_t size) {
    if (type == 'g' || type == 'K') return;  // defaults of all files and targets of links: nothing that is read here
    if (size > kMaxExtraBytes) {
      throw corrupt_archive(file_, offset_, "header of an archive is too long",
                            fmt::format("at most {} bytes", kMaxExtraBytes), fmt::format("{}", size));
    }
    std::string bytes(size, '\0');
    file_.read_at(content, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
    if (type == 'x') {
      parse_pax(bytes, extra_, file_, offset_);
    } else {
      extra_.name = bytes.substr(0, bytes.find('\0'));
    }
  }

  const core::ReadableFile& file_;
  uint64_t offset_ = 0;
  Extra extra_;
  std::vector<TarMember> members_;
};

void put(Block& block, Field field, std::string_view text) {
  std::memcpy(block.data() + field.begin, text.data(), std::min(text.size(), field.length));
}

// "length path=name\n", where length counts its own digits.
std::string pax_path(std::string_view name) {
  size_t length = name.size() + 8;
  while (fmt::format("{} path={}\n", length, name).size() != length) ++length;
  return fmt::format("{} path={}\n", length, name);
}

}  // namespace

std::vector<TarMember> index_tar(const core::ReadableFile& file) {
  return TarIndexer(file).run();
}

void check_tar_header(const core::ReadableFile& file, uint64_t offset, uint64_t size) {
  const uint64_t header = offset - kBlock;
  Block block;
  file.read_at(header, std::as_writable_bytes(std::span(block)));
  const std::optional<uint64_t> now = number_of(block, kSize);
  // A pax header may have told the size instead.
  if (number_of(block, kChecksum) == checksum_of(block) && now && (*now == size || *now == 0)) return;
  throw core::Error(core::ErrorCode::kCorruptData, {.problem = "archive has changed since the data set was opened",
                                                    .where = fmt::format("{} at offset {}", file.path(), header),
                                                    .expected = fmt::format("a file of {} bytes", size),
                                                    .actual = now ? fmt::format("{}", *now) : "no header",
                                                    .remedy = "start again, and leave the data as it is during a run"});
}

void TarWriter::write(std::string_view name, std::string_view content) {
  if (name.size() > kName.length) write_member("pax_header", pax_path(name), 'x');
  write_member(name.substr(0, kName.length), content, '0');
}

void TarWriter::write_member(std::string_view name, std::string_view content, char type) {
  Block block{};
  put(block, kName, name);
  put(block, kMode, "0000644");
  // Eleven octal digits are 8 GiB, more than any sample.
  if (content.size() >> 33 != 0) throw core::Error(core::ErrorCode::kUnsupported, "file is too large for an archive");
  put(block, kSize, fmt::format("{:011o}", content.size()));
  put(block, kTime, "00000000000");
  block[kType] = type;
  put(block, kMagic, std::string_view("ustar\00000", 8));
  put(block, kChecksum, fmt::format("{:06o}", checksum_of(block)));
  block[kChecksum.begin + 7] = ' ';
  file_->write(std::string_view(block.data(), block.size()));
  file_->write(content);
  const std::string padding((kBlock - content.size() % kBlock) % kBlock, '\0');
  file_->write(padding);
  bytes_ += kBlock + content.size() + padding.size();
}

void TarWriter::close() {
  file_->write(std::string(2 * kBlock, '\0'));
  file_->sync();
  file_->close();
}

}  // namespace trainyard::formats
