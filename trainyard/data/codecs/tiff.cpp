#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <tiffio.h>

#include "trainyard/data/codecs/optional_codecs.h"
#include "trainyard/data/codecs/whole_image.h"
#include "trainyard/data/image/orientation.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

// libtiff keeps no whole file, but a strip or tile, whose size the file chooses.
constexpr int64_t kMostBytesAtOnce = int64_t{1} << 30;

// A file in memory, and what libtiff says of it.
struct TiffBytes {
  std::span<const std::byte> bytes;
  uint64_t place = 0;
  std::string problem;  // the first
};

TiffBytes& source_of(thandle_t handle) {
  return *static_cast<TiffBytes*>(handle);
}

tmsize_t read_some(thandle_t handle, void* out, tmsize_t count) {
  TiffBytes& source = source_of(handle);
  if (count <= 0 || source.place >= source.bytes.size()) return 0;
  const uint64_t taken = std::min<uint64_t>(static_cast<uint64_t>(count), source.bytes.size() - source.place);
  std::memcpy(out, source.bytes.data() + source.place, taken);
  source.place += taken;
  return static_cast<tmsize_t>(taken);
}

tmsize_t write_none(thandle_t, void*, tmsize_t) {
  return 0;
}

toff_t seek(thandle_t handle, toff_t offset, int whence) {
  TiffBytes& source = source_of(handle);
  const uint64_t base = whence == SEEK_CUR ? source.place : whence == SEEK_END ? source.bytes.size() : 0;
  source.place = base + offset;  // beyond the end, nothing is read
  return source.place;
}

int close_nothing(thandle_t) {
  return 0;
}

toff_t size_of(thandle_t handle) {
  return source_of(handle).bytes.size();
}

// libtiff breaks its longer messages into lines, and quotes texts of the file.
std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool blank = static_cast<unsigned char>(c) <= ' ' || c == 0x7f;
    if (!blank) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  return line;
}

void note(void* user, const char* format, va_list values) {
  auto& source = *static_cast<TiffBytes*>(user);
  if (!source.problem.empty()) return;
  char text[512];
  std::vsnprintf(text, sizeof text, format, values);
  source.problem = one_line(text);
}

int note_error(TIFF*, void* user, const char*, const char* format, va_list values) {
  note(user, format, values);
  return 1;
}

// Warnings are of odd tags, but for one: data that end too early are filled up with gray.
int note_early_end(TIFF*, void* user, const char*, const char* format, va_list values) {
  char text[512];
  va_list copy;
  va_copy(copy, values);
  std::vsnprintf(text, sizeof text, format, copy);
  va_end(copy);
  if (std::string_view(text).find("Premature end") != std::string_view::npos) note(user, format, values);
  return 1;
}

struct CloseTiff {
  void operator()(TIFF* file) const { TIFFClose(file); }
};
using File = std::unique_ptr<TIFF, CloseTiff>;

struct FreeOptions {
  void operator()(TIFFOpenOptions* options) const { TIFFOpenOptionsFree(options); }
};

Error tiff_error(std::string_view why) {
  return {ErrorCode::kCorruptData, {.problem = fmt::format("TIFF cannot be decoded: {}", why)}};
}

File open(TiffBytes& source) {
  const std::unique_ptr<TIFFOpenOptions, FreeOptions> options(TIFFOpenOptionsAlloc());
  if (!options) return nullptr;
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), kMostBytesAtOnce);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), note_error, &source);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), note_early_end, &source);
  constexpr const char* kReadOnlyNotMapped = "rm";
  return File(TIFFClientOpenExt("image", kReadOnlyNotMapped, &source, read_some, write_none, seek, close_nothing,
                                size_of, nullptr, nullptr, options.get()));
}

Error failure_of(const TiffBytes& source) {
  return tiff_error(source.problem.empty() ? "it is damaged" : source.problem);
}

template <typename Number>
Number tag(TIFF* file, uint32_t name) {
  Number value{};
  return TIFFGetFieldDefaulted(file, name, &value) == 1 ? value : Number{};
}

ImageSize stored_size(TIFF* file) {
  const auto height = tag<uint32_t>(file, TIFFTAG_IMAGELENGTH), width = tag<uint32_t>(file, TIFFTAG_IMAGEWIDTH);
  if (height > INT32_MAX || width > INT32_MAX) return {};
  return {static_cast<int>(height), static_cast<int>(width)};
}

int orientation_of(TIFF* file) {
  const auto orientation = tag<uint16_t>(file, TIFFTAG_ORIENTATION);
  return orientation >= 1 && orientation <= 8 ? orientation : 1;
}

// The compressions that untrusted files may use: the others are rare, and their decoders have a history of faults.
core::Result<void> check_kind(TIFF* file) {
  switch (const auto compression = tag<uint16_t>(file, TIFFTAG_COMPRESSION)) {
    case COMPRESSION_NONE:
    case COMPRESSION_CCITTRLE:
    case COMPRESSION_CCITTFAX3:
    case COMPRESSION_CCITTFAX4:
    case COMPRESSION_LZW:
    case COMPRESSION_JPEG:
    case COMPRESSION_ADOBE_DEFLATE:
    case COMPRESSION_DEFLATE:
    case COMPRESSION_PACKBITS:
    case COMPRESSION_ZSTD:
      break;
    default:
      return tiff_error(fmt::format("compression {} is not read here", compression));
  }
  const auto format = tag<uint16_t>(file, TIFFTAG_SAMPLEFORMAT);
  if (format != SAMPLEFORMAT_UINT && format != SAMPLEFORMAT_VOID) {
    return tiff_error(fmt::format("sample format {} is no image's", format));
  }
  if (const auto bits = tag<uint16_t>(file, TIFFTAG_BITSPERSAMPLE); bits > 16) {
    return tiff_error(fmt::format("{} bits a sample", bits));
  }
  // Programs differ in whether 0 is black then.
  if (uint16_t photometric = 0; TIFFGetField(file, TIFFTAG_PHOTOMETRIC, &photometric) != 1) {
    return tiff_error("it does not say which colours its samples are: the tag PhotometricInterpretation is missing");
  }
  return {};
}

// Returns an error unless all strips or tiles have a place. A file may name fewer strips than its height needs. libtiff
// takes those that are not named to lie at the file's begin, and its header for pixels.
core::Result<void> check_places(TIFF* file) {
  constexpr uint64_t kHeaderBytes = 8;
  const bool tiled = TIFFIsTiled(file) != 0;
  const uint32_t count = tiled ? TIFFNumberOfTiles(file) : TIFFNumberOfStrips(file);
  for (uint32_t i = 0; i < count; ++i) {
    if (TIFFGetStrileOffset(file, i) >= kHeaderBytes) continue;
    return tiff_error(fmt::format("{} {} of {} is not in the file", tiled ? "tile" : "strip", i + 1, count));
  }
  return {};
}

enum class Alpha { kNone, kApart, kMultiplied };

// libtiff would multiply colours by an alpha that is apart from them: it is told that this was done. Returns what is
// so.
Alpha settle_alpha(TIFF* file) {
  uint16_t count = 0;
  uint16_t* types = nullptr;
  if (TIFFGetField(file, TIFFTAG_EXTRASAMPLES, &count, &types) != 1 || count == 0 || types == nullptr) {
    return Alpha::kNone;
  }
  if (types[0] == EXTRASAMPLE_ASSOCALPHA) return Alpha::kMultiplied;
  if (types[0] != EXTRASAMPLE_UNASSALPHA) return Alpha::kNone;
  std::vector<uint16_t> told(types, types + count);
  told[0] = EXTRASAMPLE_ASSOCALPHA;
  TIFFSetField(file, TIFFTAG_EXTRASAMPLES, static_cast<int>(count), told.data());
  return Alpha::kApart;
}

// Where nothing is left of a colour it is black, as Pillow has it.
uint8_t divided(uint32_t colour, uint32_t alpha) {
  if (alpha == 0) return 0;
  return static_cast<uint8_t>(std::min<uint32_t>(255, colour * 255 / alpha));
}

struct RgbaImage : TIFFRGBAImage {
  ~RgbaImage() {
    if (begun) TIFFRGBAImageEnd(this);
  }
  bool begun = false;
};

core::Result<void> fill_pixels(TIFF* file, const TiffBytes& source, ImageSize size, uint8_t* pixels) {
  if (auto checked = check_places(file); !checked.ok()) return checked.error();
  const Alpha alpha = settle_alpha(file);
  TIFFSetField(file, TIFFTAG_ORIENTATION, static_cast<int>(ORIENTATION_TOPLEFT));  // turned later, as all formats are
  char message[1024] = "";
  RgbaImage image{};
  constexpr int kStopAtErrors = 1;
  image.begun = TIFFRGBAImageOK(file, message) != 0 && TIFFRGBAImageBegin(&image, file, kStopAtErrors, message) != 0;
  if (!image.begun) return tiff_error(message[0] == '\0' ? source.problem : one_line(message));
  image.req_orientation = ORIENTATION_TOPLEFT;
  const auto count = static_cast<size_t>(size.height) * static_cast<size_t>(size.width);
  PooledVector<uint32_t> raster;
  raster.resize(count);
  std::fill(raster.begin(), raster.end(), 0U);
  const int got =
      TIFFRGBAImageGet(&image, raster.data(), static_cast<uint32_t>(size.width), static_cast<uint32_t>(size.height));
  if (got == 0 || !source.problem.empty()) return failure_of(source);
  for (size_t i = 0; i < count; ++i, pixels += 3) {
    const uint32_t pixel = raster[i];
    const uint32_t a = TIFFGetA(pixel);
    const bool divides = alpha == Alpha::kMultiplied && a != 255;
    pixels[0] = divides ? divided(TIFFGetR(pixel), a) : static_cast<uint8_t>(TIFFGetR(pixel));
    pixels[1] = divides ? divided(TIFFGetG(pixel), a) : static_cast<uint8_t>(TIFFGetG(pixel));
    pixels[2] = divides ? divided(TIFFGetB(pixel), a) : static_cast<uint8_t>(TIFFGetB(pixel));
  }
  return {};
}

}  // namespace

core::Result<ImageSize> read_tiff_size(std::span<const std::byte> bytes, bool exif_orientation) {
  TiffBytes source{bytes};
  const File file = open(source);
  if (!file) return failure_of(source);
  const ImageSize size = stored_size(file.get());
  if (size.height <= 0 || size.width <= 0) return tiff_error("it has no size");
  return exif_orientation ? oriented_size(size, orientation_of(file.get())) : size;
}

int read_tiff_orientation(std::span<const std::byte> bytes) {
  TiffBytes source{bytes};
  const File file = open(source);
  return file ? orientation_of(file.get()) : 1;
}

core::Result<Image> decode_tiff(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop,
                                const DecodeOptions& options) {
  TiffBytes source{bytes};
  const File file = open(source);
  if (!file) return failure_of(source);
  const ImageSize size = stored_size(file.get());
  if (size.height <= 0 || size.width <= 0) return tiff_error("it has no size");
  if (auto checked = check_kind(file.get()); !checked.ok()) return checked.error();
  source.problem.clear();  // about tags that are not needed
  return decode_whole({size, options.exif_orientation ? orientation_of(file.get()) : 1}, crop, options.limits,
                      [&](uint8_t* pixels) { return fill_pixels(file.get(), source, size, pixels); });
}

}  // namespace trainyard::data
