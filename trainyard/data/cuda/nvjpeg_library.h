// Loads nvJPEG's functions from this machine's library at the first use, so that a machine without it can do everything
// else.
#pragma once

#include <string>

#include <nvjpeg.h>

namespace trainyard::data::cuda {

struct NvjpegLibrary {
  decltype(&::nvjpegCreateEx) create = nullptr;
  decltype(&::nvjpegDestroy) destroy = nullptr;
  decltype(&::nvjpegJpegStateCreate) create_state = nullptr;
  decltype(&::nvjpegJpegStateDestroy) destroy_state = nullptr;
  decltype(&::nvjpegJpegStreamCreate) create_stream = nullptr;
  decltype(&::nvjpegJpegStreamDestroy) destroy_stream = nullptr;
  decltype(&::nvjpegJpegStreamParseHeader) parse_header = nullptr;
  decltype(&::nvjpegGetImageInfo) image_info = nullptr;
  decltype(&::nvjpegDecode) decode = nullptr;
  decltype(&::nvjpegDecodeBatchedInitialize) begin_batched = nullptr;
  decltype(&::nvjpegDecodeBatchedSupported) batched_supported = nullptr;
  decltype(&::nvjpegDecodeBatched) decode_batched = nullptr;
};

// Returns the functions. Throws kUnsupported, with what to install, when there is no libnvjpeg.so.13 or it lacks a
// function.
const NvjpegLibrary& nvjpeg();

// "NVJPEG_STATUS_BAD_JPEG".
std::string status_name(nvjpegStatus_t status);

}  // namespace trainyard::data::cuda
