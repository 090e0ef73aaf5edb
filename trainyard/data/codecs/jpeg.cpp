#include "trainyard/data/codecs/jpeg.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <fmt/core.h>
// jpeglib.h needs <cstdio> before it.
#include <jerror.h>
#include <jpeglib.h>

#include "trainyard/data/codecs/jpeg_entropy.h"
#include "trainyard/data/image/orientation.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

// libjpeg reports errors by calling a function that must not return. It is C, compiled without unwind tables in
// general, so no exception may pass through it: longjmp, over frames that hold nothing with a destructor.
struct ErrorManager {
  jpeg_error_mgr base;  // first: libjpeg knows only this part
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void escape_with_message(j_common_ptr codec) {
  auto* manager = reinterpret_cast<ErrorManager*>(codec->err);
  codec->err->format_message(codec, manager->message);
  std::longjmp(manager->escape, 1);
}

// Level -1 is a warning about damaged data, others are traces. Real data sets hold files with harmless warnings (bytes
// between segments); only data that ends too early is an error, as it is for TensorFlow.
void escape_if_truncated(j_common_ptr codec, int level) {
  if (level == -1 && codec->err->msg_code == JWRN_JPEG_EOF) escape_with_message(codec);
}

// A file of a megabyte can hold 100,000 scans, each a pass over all coefficients of an image as large as the file
// claims. Encoders write about ten; libjpeg-turbo advises programs that read untrusted files to stop at 500.
constexpr int kMaxScans = 500;

void escape_after_many_scans(j_common_ptr codec) {
  if (reinterpret_cast<j_decompress_ptr>(codec)->input_scan_number <= kMaxScans) return;
  auto* manager = reinterpret_cast<ErrorManager*>(codec->err);
  std::snprintf(manager->message, sizeof manager->message, "more than %d scans", kMaxScans);
  std::longjmp(manager->escape, 1);
}

void install(ErrorManager& manager) {
  jpeg_std_error(&manager.base);
  manager.base.error_exit = escape_with_message;
  manager.base.emit_message = escape_if_truncated;
}

struct Decompressor {
  jpeg_decompress_struct codec{};
  ErrorManager errors{};
  jpeg_progress_mgr progress{};           // asked at each row and scan
  JpegEntropyDecoder* entropy = nullptr;  // of this thread

  Decompressor() {
    static thread_local const auto kOfThread = std::make_unique_for_overwrite<JpegEntropyDecoder>();
    entropy = kOfThread.get();
    codec.err = &errors.base;
    install(errors);
    progress.progress_monitor = escape_after_many_scans;
  }
  ~Decompressor() { jpeg_destroy_decompress(&codec); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  Error error() const {
    return {ErrorCode::kCorruptData, {.problem = fmt::format("JPEG cannot be decoded: {}", errors.message)}};
  }
};

// The functions below that call setjmp hold only trivial locals. They return false after an error.
bool read_header(Decompressor& d, std::span<const std::byte> bytes, bool with_exif) {
  if (setjmp(d.errors.escape) != 0) return false;
  jpeg_create_decompress(&d.codec);
  d.codec.progress = &d.progress;
  if (with_exif) jpeg_save_markers(&d.codec, JPEG_APP0 + 1, 0xffff);
  jpeg_mem_src(&d.codec, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&d.codec, TRUE);
  return true;
}

bool is_cmyk(const jpeg_decompress_struct& codec) {
  return codec.jpeg_color_space == JCS_CMYK || codec.jpeg_color_space == JCS_YCCK;
}

int orientation_of(const jpeg_decompress_struct& codec) {
  for (const auto* marker = codec.marker_list; marker != nullptr; marker = marker->next) {
    const int orientation =
        exif_orientation({reinterpret_cast<const std::byte*>(marker->data), size_t{marker->data_length}});
    if (orientation != 1) return orientation;
  }
  return 1;
}

// 1, 2, 4 or 8: by how much the window can be smaller.
int scale_of(const CropWindow& window, ImageSize at_least) {
  if (at_least.height <= 0 || at_least.width <= 0) return 1;
  int scale = 8;
  while (scale > 1 && (window.height / scale < at_least.height || window.width / scale < at_least.width)) scale /= 2;
  return scale;
}

CropWindow scaled(const CropWindow& window, int scale) {
  const int y = window.y / scale, x = window.x / scale;
  return {y, x, (window.y + window.height + scale - 1) / scale - y, (window.x + window.width + scale - 1) / scale - x};
}

// Begins decompression; narrows the columns to those needed for `crop`. *first_column: the image's column of the first
// one that will be read.
bool start(Decompressor& d, const CropWindow& crop, int scale, int* first_column) {
  if (setjmp(d.errors.escape) != 0) return false;
  jpeg_decompress_struct& codec = d.codec;
  codec.out_color_space = is_cmyk(codec) ? JCS_CMYK : JCS_RGB;
  codec.dct_method = JDCT_ISLOW;
  codec.do_fancy_upsampling = TRUE;
  // libjpeg would smooth blocks of a progressive file whose later scans are missing, a part otherwise than the whole.
  codec.do_block_smoothing = FALSE;
  codec.scale_num = 1;
  codec.scale_denom = scale;
  jpeg_start_decompress(&codec);
  d.entropy->attach(codec);
  // Smooth upsampling looks at the neighbours: one column more on each side keeps the pixels those of the whole image.
  // A few columns at least do so, too: libjpeg upsamples a single column of chroma without smoothing.
  constexpr int kFewest = 6;
  const int columns = static_cast<int>(codec.output_width);
  const int left = std::max(std::min(crop.x - 1, columns - kFewest), 0);
  const int right = std::min(std::max(crop.x + crop.width + 1, left + kFewest), columns);
  JDIMENSION x = left;
  JDIMENSION width = right - left;
  if (width < codec.output_width) jpeg_crop_scanline(&codec, &x, &width);
  *first_column = static_cast<int>(x);
  return true;
}

void cmyk_to_rgb(const uint8_t* cmyk, int width, bool inverted, uint8_t* rgb) {
  for (int x = 0; x < width; ++x, cmyk += 4, rgb += 3) {
    const int black = inverted ? cmyk[3] : 255 - cmyk[3];
    for (int c = 0; c < 3; ++c) {
      const int light = inverted ? cmyk[c] : 255 - cmyk[c];
      rgb[c] = static_cast<uint8_t>(black * light / 255);
    }
  }
}

// Reads the rows of `crop` into `pixels`; `row` holds one row as the codec gives it. Decompression is not finished
// formally: all rows wanted are there, what follows does not matter.
bool read_rows(Decompressor& d, const CropWindow& crop, int first_column, uint8_t* row, uint8_t* pixels) {
  if (setjmp(d.errors.escape) != 0) return false;
  jpeg_decompress_struct& codec = d.codec;
  const int channels = codec.output_components;
  if (crop.y > 0) jpeg_skip_scanlines(&codec, crop.y);
  const uint8_t* source = row + static_cast<ptrdiff_t>(crop.x - first_column) * channels;
  for (int y = 0; y < crop.height; ++y) {
    jpeg_read_scanlines(&codec, &row, 1);
    uint8_t* target = pixels + static_cast<ptrdiff_t>(y) * crop.width * 3;
    if (channels == 3) {
      std::memcpy(target, source, static_cast<size_t>(crop.width) * 3);
    } else {
      cmyk_to_rgb(source, crop.width, codec.saw_Adobe_marker != 0, target);
    }
  }
  return true;
}

}  // namespace

core::Result<ImageSize> read_jpeg_size(std::span<const std::byte> bytes, bool exif_orientation) {
  Decompressor d;
  if (!read_header(d, bytes, exif_orientation)) return d.error();
  return oriented_size({static_cast<int>(d.codec.image_height), static_cast<int>(d.codec.image_width)},
                       orientation_of(d.codec));
}

int read_jpeg_orientation(std::span<const std::byte> bytes) {
  Decompressor d;
  return read_header(d, bytes, /*with_exif=*/true) ? orientation_of(d.codec) : 1;
}

std::string unusual_jpeg(std::span<const std::byte> bytes, bool exif_orientation) {
  if (bytes.size() < 4 || bytes[0] != std::byte{0xff} || bytes[1] != std::byte{0xd8}) return "it is no JPEG";
  Decompressor d;
  if (!read_header(d, bytes, exif_orientation)) return d.errors.message;
  if (orientation_of(d.codec) != 1) return "its EXIF data say that it is to be turned";
  const jpeg_decompress_struct& codec = d.codec;
  if (codec.jpeg_color_space != JCS_GRAYSCALE && codec.jpeg_color_space != JCS_YCbCr) {
    return "its colours are neither gray nor YCbCr";
  }
  if (codec.data_precision != 8) return "its samples have more than 8 bits";
  if (codec.arith_code != 0) return "it is arithmetically coded";
  if (bytes[bytes.size() - 2] != std::byte{0xff} || bytes.back() != std::byte{0xd9})
    return "it ends without an end marker";
  return "";
}

core::Result<Image> decode_jpeg(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop,
                                const DecodeOptions& options) {
  Decompressor d;
  if (!read_header(d, bytes, options.exif_orientation)) return d.error();
  const ImageSize stored{static_cast<int>(d.codec.image_height), static_cast<int>(d.codec.image_width)};
  if (auto checked = check_size(stored, options.limits); !checked.ok()) return checked.error();
  const int orientation = orientation_of(d.codec);
  const ImageSize size = oriented_size(stored, orientation);
  const CropWindow wanted = crop.value_or(CropWindow{0, 0, size.height, size.width});
  if (auto checked = check_inside(wanted, size); !checked.ok()) return checked.error();
  const int scale = scale_of(wanted, options.at_least);
  const CropWindow window = scaled(stored_window(wanted, orientation, stored), scale);

  Image image{.height = window.height, .width = window.width};
  const int64_t pixel_bytes = int64_t{3} * window.height * window.width;
  if (options.limits.before_allocation) options.limits.before_allocation(pixel_bytes);
  image.pixels.resize(pixel_bytes);
  int first_column = 0;
  if (!start(d, window, scale, &first_column)) return d.error();
  std::vector<uint8_t> row(static_cast<size_t>(d.codec.output_width) * d.codec.output_components);
  if (!read_rows(d, window, first_column, row.data(), image.pixels.data())) return d.error();
  if (orientation != 1) return oriented(image, orientation);
  return image;
}

namespace {

struct Compressor {
  jpeg_compress_struct codec{};
  ErrorManager errors{};
  unsigned char* output = nullptr;  // libjpeg's, by malloc
  unsigned long size = 0;

  Compressor() {
    codec.err = &errors.base;
    install(errors);
  }
  ~Compressor() {
    jpeg_destroy_compress(&codec);
    std::free(output);
  }
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;
};

bool compress(Compressor& c, const uint8_t* pixels, int height, int width, int quality, ChromaSubsampling subsampling) {
  if (setjmp(c.errors.escape) != 0) return false;
  jpeg_compress_struct& codec = c.codec;
  jpeg_create_compress(&codec);
  jpeg_mem_dest(&codec, &c.output, &c.size);
  codec.image_height = height;
  codec.image_width = width;
  codec.input_components = 3;
  codec.in_color_space = JCS_RGB;
  jpeg_set_defaults(&codec);
  jpeg_set_quality(&codec, quality, TRUE);
  if (subsampling == ChromaSubsampling::k444) codec.comp_info[0].h_samp_factor = codec.comp_info[0].v_samp_factor = 1;
  jpeg_start_compress(&codec, TRUE);
  for (int y = 0; y < height; ++y) {
    JSAMPROW row = const_cast<uint8_t*>(pixels + static_cast<ptrdiff_t>(y) * width * 3);
    jpeg_write_scanlines(&codec, &row, 1);
  }
  jpeg_finish_compress(&codec);
  return true;
}

}  // namespace

std::vector<std::byte> encode_jpeg(const Image& image, int quality, ChromaSubsampling subsampling) {
  if (image.pixels.size() != static_cast<size_t>(image.height) * image.width * 3 || image.pixels.empty()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "image to encode is empty or of another size",
                                              .expected = fmt::format("{} x {} x 3", image.height, image.width),
                                              .actual = fmt::format("{} bytes", image.pixels.size())});
  }
  Compressor c;
  if (!compress(c, image.pixels.data(), image.height, image.width, quality, subsampling)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("JPEG cannot be encoded: {}", c.errors.message));
  }
  const auto* begin = reinterpret_cast<const std::byte*>(c.output);
  return {begin, begin + c.size};
}

}  // namespace trainyard::data
