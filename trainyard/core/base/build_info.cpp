#include "trainyard/core/base/build_info.h"

#include "build_values.h"

#include "trainyard/version.h"

namespace trainyard::core {

// Defined in a file of its own that the build writes again when the revision changes (cmake/GitRevision.cmake).
extern const char* const kGitRevision;

const BuildInfo& build_info() {
  static const BuildInfo kInfo{
      .version = TRAINYARD_VERSION,
      .git_revision = kGitRevision,
      .compiler = TRAINYARD_COMPILER,
      .build_type = TRAINYARD_BUILD_TYPE,
      .instruction_set = TRAINYARD_INSTRUCTION_SET,
      .sanitizers = TRAINYARD_SANITIZERS,
      .libraries = {{"LibTorch", TRAINYARD_LIBTORCH_VERSION},
                    {"oneDNN", TRAINYARD_ONEDNN_VERSION},
                    {"libjpeg-turbo", TRAINYARD_JPEG_VERSION},
                    {"libspng", TRAINYARD_SPNG_VERSION},
                    {"protozero", TRAINYARD_PROTOZERO_VERSION},
                    {"fmt", TRAINYARD_FMT_VERSION},
                    {"spdlog", TRAINYARD_SPDLOG_VERSION},
                    {"nlohmann-json", TRAINYARD_JSON_VERSION},
#if TRAINYARD_HDF5
                    {"HDF5", TRAINYARD_HDF5_VERSION},
#endif
#if TRAINYARD_WITH_GRPC
                    {"gRPC", TRAINYARD_GRPC_VERSION},
#endif
                    {"yaml-cpp", TRAINYARD_YAML_VERSION}},
      .optional_parts = {{"CUDA", TRAINYARD_WITH_CUDA != 0, "the CUDA toolkit 13.0, then cmake --preset cuda"},
                         {"NCCL", TRAINYARD_WITH_NCCL != 0,
                          "CUDA and nccl.h (libnccl-dev, or scripts/setup --cuda), then cmake --preset cuda"},
                         {"MPI", TRAINYARD_WITH_MPI != 0,
                          "libopenmpi-dev and openmpi-bin, then configure and build again"},
                         {"gRPC", TRAINYARD_WITH_GRPC != 0, "libgrpc++-dev, then configure and build again"},
                         {"HDF5", TRAINYARD_HDF5 != 0, "libhdf5-dev, then cmake -DTRAINYARD_HDF5=ON"},
                         {"WebP", TRAINYARD_WEBP != 0, "libwebp-dev, then configure and build again"},
                         {"GIF", TRAINYARD_GIF != 0, "libgif-dev, then configure and build again"},
                         {"BMP", TRAINYARD_BMP != 0, "libstb-dev, then configure and build again"},
                         {"TIFF", TRAINYARD_TIFF != 0, "libtiff-dev, then configure and build again"}},
  };
  return kInfo;
}

}  // namespace trainyard::core
