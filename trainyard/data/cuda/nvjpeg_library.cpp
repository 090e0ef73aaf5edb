#include "trainyard/data/cuda/nvjpeg_library.h"

#include <array>
#include <filesystem>

#include <c10/cuda/CUDAFunctions.h>
#include <dlfcn.h>

#include "trainyard/core/base/error.h"

namespace trainyard::data::cuda {
namespace {

constexpr const char* kName = "libnvjpeg.so.13";

// Where pip installs the package: next to LibTorch's.
std::string beside_torch() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&c10::cuda::device_count), &info) == 0) return "";
  const std::filesystem::path lib = std::filesystem::path(info.dli_fname).parent_path();
  return (lib.parent_path().parent_path() / "nvidia" / "cu13" / "lib" / kName).string();
}

[[noreturn]] void refuse(const std::string& why) {
  throw core::Error(
      core::ErrorCode::kUnsupported,
      {.problem = "images cannot be decoded on the GPU",
       .where = kName,
       .actual = why,
       .remedy = "install nvidia-nvjpeg (a part of the CUDA toolkit, and a package of pip), or decode on the "
                 "CPU"});
}

NvjpegLibrary load() {
  // By the loader's paths, the program's own among them.
  void* handle = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  const std::string why = handle == nullptr ? dlerror() : "";
  if (handle == nullptr) handle = dlopen(beside_torch().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) refuse(why);
  const auto find = [handle](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) refuse(std::string("it has no function ") + name);
  };
  NvjpegLibrary library;
  find(library.create, "nvjpegCreateEx");
  find(library.destroy, "nvjpegDestroy");
  find(library.create_state, "nvjpegJpegStateCreate");
  find(library.destroy_state, "nvjpegJpegStateDestroy");
  find(library.create_stream, "nvjpegJpegStreamCreate");
  find(library.destroy_stream, "nvjpegJpegStreamDestroy");
  find(library.parse_header, "nvjpegJpegStreamParseHeader");
  find(library.image_info, "nvjpegGetImageInfo");
  find(library.decode, "nvjpegDecode");
  find(library.begin_batched, "nvjpegDecodeBatchedInitialize");
  find(library.batched_supported, "nvjpegDecodeBatchedSupported");
  find(library.decode_batched, "nvjpegDecodeBatched");
  return library;
}

}  // namespace

const NvjpegLibrary& nvjpeg() {
  static const NvjpegLibrary library = load();  // stays for the life of the program
  return library;
}

std::string status_name(nvjpegStatus_t status) {
  static constexpr std::array kNames = {"SUCCESS",
                                        "NOT_INITIALIZED",
                                        "INVALID_PARAMETER",
                                        "BAD_JPEG",
                                        "JPEG_NOT_SUPPORTED",
                                        "ALLOCATOR_FAILURE",
                                        "EXECUTION_FAILED",
                                        "ARCH_MISMATCH",
                                        "INTERNAL_ERROR",
                                        "IMPLEMENTATION_NOT_SUPPORTED",
                                        "INCOMPLETE_BITSTREAM"};
  const auto index = static_cast<size_t>(status);
  return index < kNames.size() ? std::string("NVJPEG_STATUS_") + kNames[index] : "status " + std::to_string(index);
}

}  // namespace trainyard::data::cuda
