#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gif_lib.h>

#include "trainyard/data/codecs/optional_codecs.h"
#include "trainyard/data/codecs/palette.h"
#include "trainyard/data/codecs/whole_image.h"

namespace trainyard::data {
namespace {

using core::Error, core::ErrorCode;

Error gif_error(std::string_view why) {
  return {ErrorCode::kCorruptData, {.problem = fmt::format("GIF cannot be decoded: {}", why)}};
}

// What giflib reads from.
struct GifBytes {
  std::span<const std::byte> bytes;
  size_t place = 0;
};

int read_from(GifFileType* file, GifByteType* out, int count) {
  auto& source = *static_cast<GifBytes*>(file->UserData);
  const size_t taken = std::min(static_cast<size_t>(std::max(count, 0)), source.bytes.size() - source.place);
  if (taken > 0) std::memcpy(out, source.bytes.data() + source.place, taken);
  source.place += taken;
  return static_cast<int>(taken);
}

std::string text_of(int code) {
  const char* text = GifErrorString(code);
  return text == nullptr ? "it is damaged" : text;
}

// The indices of a frame, whose codes giflib reads. Its own decoder takes codes that mean nothing yet for some that do,
// so that a damaged image would be another image instead of an error.
class LzwDecoder {
 public:
  // `bits`: of an index, as the frame says; giflib has checked them.
  LzwDecoder(GifFileType& file, int bits) : file_(file), clear_(1 << bits) { reset_codes(); }

  core::Result<void> read(std::span<uint8_t> indices) {
    for (uint8_t& index : indices) {
      while (pending_.empty()) {
        if (auto read = read_code(); !read.ok()) return read;
      }
      index = pending_.back();
      pending_.pop_back();
    }
    return {};
  }

 private:
  static constexpr int kCodes = 4096, kNone = -1;
  struct Entry {
    int prefix = kNone;
    uint8_t suffix = 0;
  };

  void reset_codes() {
    next_ = clear_ + 2;
    last_ = kNone;
  }

  // Adds the indices of the next code to `pending_`, the last one first.
  core::Result<void> read_code() {
    int code = 0;
    if (DGifGetLZCodes(&file_, &code) == GIF_ERROR) return gif_error(text_of(file_.Error));
    if (code == kNone) return gif_error("its data end too early");
    if (code == clear_) {
      reset_codes();
      return {};
    }
    // The code that is about to be defined: the last text and its own first index.
    const bool defines_itself = code == next_ && last_ != kNone && next_ < kCodes;
    if (!defines_itself && (code > clear_ ? code >= next_ : code < 0)) return gif_error("its codes are damaged");
    if (defines_itself) pending_.push_back(0);
    for (int at = defines_itself ? last_ : code; at != kNone; at = at < clear_ ? kNone : entries_[at].prefix) {
      pending_.push_back(at < clear_ ? static_cast<uint8_t>(at) : entries_[at].suffix);
    }
    if (defines_itself) pending_.front() = pending_.back();
    if (last_ != kNone && next_ < kCodes) entries_[next_++] = {last_, pending_.back()};
    last_ = code;
    return {};
  }

  GifFileType& file_;
  const int clear_;  // the clear code; the next number is the end code
  int next_ = 0;     // code that is defined next
  int last_ = kNone;
  std::vector<uint8_t> pending_;
  std::array<Entry, kCodes> entries_{};
};

struct CloseGif {
  void operator()(GifFileType* file) const { DGifCloseFile(file, nullptr); }
};

// A file up to its first frame's description.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : source_{bytes} {}

  // Reads up to the first frame; an error where there is none.
  core::Result<void> open() {
    int error = 0;
    file_.reset(DGifOpen(&source_, read_from, &error));
    if (!file_) return gif_error(text_of(error));
    for (;;) {
      GifRecordType type = UNDEFINED_RECORD_TYPE;
      if (DGifGetRecordType(file_.get(), &type) == GIF_ERROR) return failed();
      if (type == IMAGE_DESC_RECORD_TYPE) break;
      if (type == TERMINATE_RECORD_TYPE) return gif_error("it holds no frame");
      if (!read_extension()) return failed();
    }
    if (DGifGetImageDesc(file_.get()) == GIF_ERROR) return failed();
    const GifImageDesc& frame = file_->Image;
    if (frame.Width <= 0 || frame.Height <= 0 || frame.Left < 0 || frame.Top < 0)
      return gif_error("its frame is empty");
    return {};
  }

  ImageSize size() const {
    const GifImageDesc& frame = file_->Image;
    return {std::max(file_->SHeight, frame.Top + frame.Height), std::max(file_->SWidth, frame.Left + frame.Width)};
  }

  core::Result<void> fill(uint8_t* pixels) {
    const ImageSize all = size();
    const GifImageDesc& frame = file_->Image;
    const auto colours = palette();
    const auto& around = colours[static_cast<size_t>(transparent_ == NO_TRANSPARENT_COLOR ? 0 : transparent_)];
    if (frame.Width != all.width || frame.Height != all.height) {
      for (int64_t i = 0; i < int64_t{all.height} * all.width; ++i) std::copy_n(around.data(), 3, pixels + 3 * i);
    }
    std::vector<uint8_t> line(static_cast<size_t>(frame.Width));
    // giflib has read the frame's description up to this byte: bits of an index.
    LzwDecoder decoder(*file_, std::to_integer<int>(source_.bytes[source_.place - 1]));
    for (const auto& [first, step] : passes(frame.Interlace)) {
      for (int y = first; y < frame.Height; y += step) {
        if (auto read = decoder.read(line); !read.ok()) return read.error();
        uint8_t* out = pixels + 3 * (int64_t{frame.Top + y} * all.width + frame.Left);
        for (const uint8_t index : line) out = std::copy_n(colours[index].data(), 3, out);
      }
    }
    return {};
  }

 private:
  struct Pass {
    int first, step;
  };
  // Rows of an interlaced frame come in four passes.
  static std::vector<Pass> passes(bool interlaced) {
    if (!interlaced) return {{0, 1}};
    return {{0, 8}, {4, 8}, {2, 4}, {1, 2}};
  }

  Error failed() const { return gif_error(text_of(file_->Error)); }

  // Notes the transparent colour, which holds for the frame behind it.
  bool read_extension() {
    int code = 0;
    GifByteType* block = nullptr;
    if (DGifGetExtension(file_.get(), &code, &block) == GIF_ERROR) return false;
    while (block != nullptr) {
      GraphicsControlBlock control{};
      if (code == GRAPHICS_EXT_FUNC_CODE && DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK) {
        transparent_ = control.TransparentColor;
      }
      if (DGifGetExtensionNext(file_.get(), &block) == GIF_ERROR) return false;
    }
    return true;
  }

  // Grays where the file has no palette.
  Palette palette() const {
    Palette colours{};
    const ColorMapObject* map = file_->Image.ColorMap != nullptr ? file_->Image.ColorMap : file_->SColorMap;
    const size_t count = map == nullptr ? 0 : std::min<size_t>(map->ColorCount, kPaletteColours);
    for (size_t i = 0; i < count; ++i) {
      const GifColorType& colour = map->Colors[i];
      colours[i] = {colour.Red, colour.Green, colour.Blue};
    }
    fill_rest(colours, count);
    return colours;
  }

  GifBytes source_;
  std::unique_ptr<GifFileType, CloseGif> file_;
  int transparent_ = NO_TRANSPARENT_COLOR;
};

}  // namespace

core::Result<ImageSize> read_gif_size(std::span<const std::byte> bytes, bool) {
  Reader reader(bytes);
  if (auto opened = reader.open(); !opened.ok()) return opened.error();
  return reader.size();
}

core::Result<Image> decode_gif(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop,
                               const DecodeOptions& options) {
  Reader reader(bytes);
  if (auto opened = reader.open(); !opened.ok()) return opened.error();
  return decode_whole({reader.size(), 1}, crop, options.limits, [&](uint8_t* pixels) { return reader.fill(pixels); });
}

}  // namespace trainyard::data
