#include <algorithm>
#include <memory>
#include <string>

#include <fmt/core.h>
#include <webp/decode.h>
#include <webp/demux.h>

#include "trainyard/data/codecs/optional_codecs.h"
#include "trainyard/data/codecs/whole_image.h"
#include "trainyard/data/image/orientation.h"

namespace trainyard::data {
namespace {

using core::Error, core::ErrorCode;

Error webp_error(std::string why) {
  return {ErrorCode::kCorruptData, {.problem = fmt::format("WebP cannot be decoded: {}", why)}};
}

const uint8_t* data_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

struct FreeDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
using Demuxer = std::unique_ptr<WebPDemuxer, FreeDemuxer>;

core::Result<Demuxer> open(std::span<const std::byte> bytes) {
  const WebPData data{data_of(bytes), bytes.size()};
  Demuxer demuxer(WebPDemux(&data));
  if (!demuxer) return webp_error("it is truncated, or its parts are out of order");
  return demuxer;
}

ImageSize canvas_of(const WebPDemuxer& demuxer) {
  return {static_cast<int>(WebPDemuxGetI(&demuxer, WEBP_FF_CANVAS_HEIGHT)),
          static_cast<int>(WebPDemuxGetI(&demuxer, WEBP_FF_CANVAS_WIDTH))};
}

int orientation_of(const WebPDemuxer& demuxer) {
  WebPChunkIterator chunk{};
  int orientation = 1;
  if (WebPDemuxGetChunk(&demuxer, "EXIF", 1, &chunk) != 0) {
    orientation = tiff_orientation({reinterpret_cast<const std::byte*>(chunk.chunk.bytes), chunk.chunk.size});
  }
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

struct Frame : WebPIterator {
  explicit Frame(const WebPDemuxer& demuxer) : WebPIterator{}, found(WebPDemuxGetFrame(&demuxer, 1, this) != 0) {}
  ~Frame() { WebPDemuxReleaseIterator(this); }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  bool found;
};

core::Result<void> fill_first_frame(const WebPDemuxer& demuxer, ImageSize canvas, uint8_t* pixels) {
  const Frame frame(demuxer);
  if (!frame.found || frame.complete == 0) return webp_error("its first frame is not complete");
  if (frame.x_offset < 0 || frame.y_offset < 0 || frame.width > canvas.width - frame.x_offset ||
      frame.height > canvas.height - frame.y_offset) {
    return webp_error("its first frame is not inside of the image");
  }
  const size_t bytes = size_t{3} * canvas.height * canvas.width;
  if (frame.width != canvas.width || frame.height != canvas.height) std::fill_n(pixels, bytes, uint8_t{0});
  const int stride = 3 * canvas.width;
  const size_t begin = static_cast<size_t>(frame.y_offset) * stride + size_t{3} * frame.x_offset;
  // The header of the frame's own data may name another size.
  WebPBitstreamFeatures features{};
  if (WebPGetFeatures(frame.fragment.bytes, frame.fragment.size, &features) != VP8_STATUS_OK ||
      features.width != frame.width || features.height != frame.height) {
    return webp_error("its first frame has another size than is said");
  }
  if (WebPDecodeRGBInto(frame.fragment.bytes, frame.fragment.size, pixels + begin, bytes - begin, stride) == nullptr) {
    return webp_error("its pixels are truncated or damaged");
  }
  return {};
}

}  // namespace

core::Result<ImageSize> read_webp_size(std::span<const std::byte> bytes, bool exif_orientation) {
  if (exif_orientation) {
    auto demuxer = open(bytes);
    if (!demuxer.ok()) return demuxer.error();
    return oriented_size(canvas_of(*demuxer.value()), orientation_of(*demuxer.value()));
  }
  WebPBitstreamFeatures features{};
  if (WebPGetFeatures(data_of(bytes), bytes.size(), &features) != VP8_STATUS_OK) {
    return webp_error("it has no header");
  }
  return ImageSize{features.height, features.width};
}

int read_webp_orientation(std::span<const std::byte> bytes) {
  auto demuxer = open(bytes);
  return demuxer.ok() ? orientation_of(*demuxer.value()) : 1;
}

core::Result<Image> decode_webp(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop,
                                const DecodeOptions& options) {
  auto opened = open(bytes);
  if (!opened.ok()) return opened.error();
  const WebPDemuxer& demuxer = *opened.value();
  const ImageSize canvas = canvas_of(demuxer);
  return decode_whole({canvas, options.exif_orientation ? orientation_of(demuxer) : 1}, crop, options.limits,
                      [&](uint8_t* pixels) { return fill_first_frame(demuxer, canvas, pixels); });
}

}  // namespace trainyard::data
