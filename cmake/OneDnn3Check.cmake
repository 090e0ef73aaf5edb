# Compiles what calls oneDNN against version 3 as well, which newer systems have and whose calls differ. Debian 12 has
# version 2; headers of version 3 come with LibTorch's wheel. Objects only: nothing is linked with them.
set(newer ${TRAINYARD_TORCH_DIR}/include/oneapi)
list(FIND TRAINYARD_ROOMS nn nn_room)
list(FIND TRAINYARD_ROOMS "${TRAINYARD_LAST_ROOM}" last_room)
if(TRAINYARD_LAST_ROOM AND last_room LESS nn_room)  # then nothing of nn is built
  return()
endif()
if(NOT TRAINYARD_TESTS OR NOT EXISTS ${newer}/dnnl/dnnl_version.h OR DNNL_VERSION VERSION_GREATER_EQUAL 3)
  return()
endif()
trainyard_header_version(${newer}/dnnl/dnnl_version.h DNNL newer_version)
if(newer_version VERSION_LESS 3)
  return()
endif()
# Alone in a folder: beside it are other versions of fmt's and protobuf's headers.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/onednn3)
file(CREATE_LINK ${newer} ${CMAKE_BINARY_DIR}/onednn3/oneapi SYMBOLIC)
file(GLOB onednn_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/trainyard/nn/cpu/onednn_*.cpp)
trainyard_objects(trainyard_onednn3_check trainyard::libtorch
  ${onednn_sources} ${CMAKE_SOURCE_DIR}/trainyard/nn/cpu/simd/isa.cpp ${CMAKE_SOURCE_DIR}/cmake/onednn3_check.cpp)
target_include_directories(trainyard_onednn3_check SYSTEM BEFORE PRIVATE ${CMAKE_BINARY_DIR}/onednn3)
