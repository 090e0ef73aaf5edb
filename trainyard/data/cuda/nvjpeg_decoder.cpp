#include "trainyard/data/cuda/nvjpeg_decoder.h"

#include <utility>

#include <fmt/core.h>

#include "trainyard/core/base/error.h"

namespace trainyard::data::cuda {
namespace {

// Strict: a damaged file is not guessed at, but left to the decoder that says what is a bad sample.
constexpr unsigned kFlags = NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION | NVJPEG_FLAGS_BITSTREAM_STRICT;

void require(nvjpegStatus_t status, const char* what) {
  if (status == NVJPEG_STATUS_SUCCESS) return;
  throw core::Error(core::ErrorCode::kUnsupported, {.problem = "nvJPEG cannot be used on this GPU",
                                                    .where = what,
                                                    .actual = status_name(status),
                                                    .remedy = "decode on the CPU"});
}

}  // namespace

NvjpegHandles::NvjpegHandles() {
  require(nvjpeg().create(NVJPEG_BACKEND_HYBRID, nullptr, nullptr, kFlags, &hybrid_), "nvjpegCreateEx");
  if (nvjpeg().create(NVJPEG_BACKEND_HARDWARE, nullptr, nullptr, kFlags, &engines_) != NVJPEG_STATUS_SUCCESS) {
    engines_ = nullptr;
  }
}

NvjpegHandles::~NvjpegHandles() {
  if (engines_ != nullptr) nvjpeg().destroy(engines_);
  nvjpeg().destroy(hybrid_);
}

NvjpegDecoder::NvjpegDecoder(std::shared_ptr<const NvjpegHandles> handles) : handles_(std::move(handles)) {
  const NvjpegLibrary& library = nvjpeg();
  require(library.create_state(handles_->hybrid(), &hybrid_), "nvjpegJpegStateCreate");
  if (handles_->engines() == nullptr) return;
  const bool made =
      library.create_state(handles_->engines(), &engines_) == NVJPEG_STATUS_SUCCESS &&
      library.begin_batched(handles_->engines(), engines_, 1, 1, NVJPEG_OUTPUT_RGBI) == NVJPEG_STATUS_SUCCESS &&
      library.create_stream(handles_->engines(), &header_) == NVJPEG_STATUS_SUCCESS;
  if (made) return;
  if (engines_ != nullptr) library.destroy_state(engines_);
  engines_ = nullptr;
}

NvjpegDecoder::~NvjpegDecoder() {
  if (header_ != nullptr) nvjpeg().destroy_stream(header_);
  if (engines_ != nullptr) nvjpeg().destroy_state(engines_);
  nvjpeg().destroy_state(hybrid_);
}

bool NvjpegDecoder::decode_by_engines(const unsigned char* bytes, size_t count, nvjpegImage_t& image,
                                      cudaStream_t stream) {
  if (engines_ == nullptr) return false;
  const NvjpegLibrary& library = nvjpeg();
  int unsupported = 1;  // 0: supported
  if (library.parse_header(handles_->engines(), bytes, count, header_) != NVJPEG_STATUS_SUCCESS) return false;
  if (library.batched_supported(handles_->engines(), header_, &unsupported) != NVJPEG_STATUS_SUCCESS) return false;
  if (unsupported != 0) return false;
  return library.decode_batched(handles_->engines(), engines_, &bytes, &count, &image, stream) == NVJPEG_STATUS_SUCCESS;
}

std::string NvjpegDecoder::decode(std::span<const std::byte> file, ImageSize size, uint8_t* pixels,
                                  cudaStream_t stream) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(file.data());
  int components = 0;
  nvjpegChromaSubsampling_t subsampling = NVJPEG_CSS_UNKNOWN;
  int widths[NVJPEG_MAX_COMPONENT] = {}, heights[NVJPEG_MAX_COMPONENT] = {};
  const nvjpegStatus_t known =
      nvjpeg().image_info(handles_->hybrid(), bytes, file.size(), &components, &subsampling, widths, heights);
  if (known != NVJPEG_STATUS_SUCCESS) return status_name(known);
  // `pixels` has the size that libjpeg reads: two readers of a header may differ, on purpose of whoever wrote it.
  if (widths[0] != size.width || heights[0] != size.height) {
    return fmt::format("nvJPEG sees {} x {} pixels instead of {} x {}", widths[0], heights[0], size.width, size.height);
  }
  nvjpegImage_t image{};
  image.channel[0] = pixels;
  image.pitch[0] = size_t{3} * static_cast<size_t>(size.width);
  if (decode_by_engines(bytes, file.size(), image, stream)) return "";
  const nvjpegStatus_t status =
      nvjpeg().decode(handles_->hybrid(), hybrid_, bytes, file.size(), NVJPEG_OUTPUT_RGBI, &image, stream);
  return status == NVJPEG_STATUS_SUCCESS ? "" : status_name(status);
}

}  // namespace trainyard::data::cuda
