# LibTorch, from the torch folder of a PyTorch installation or of its unpacked wheel: the target trainyard::libtorch.
#
# The wheel's include folder also holds oneDNN, fmt and protobuf headers that are newer than the system's libraries and
# would win over the system's headers. So it is never on an include path: a folder of links to LibTorch's own four
# folders is. scripts/check_header_trap watches over this.
#
# Installed with the library too: find_package(trainyard) includes it.

set(TRAINYARD_TORCH_VERSION 2.11.0)
if(NOT DEFINED TRAINYARD_TORCH_DIR_DEFAULT)
  set(TRAINYARD_TORCH_DIR_DEFAULT ${CMAKE_SOURCE_DIR}/.deps/libtorch/torch)
  # What scripts/setup --cuda brings is for those who ask for CUDA by name: it has nothing to run with.
  if(TRAINYARD_CUDA STREQUAL "ON" AND EXISTS ${CMAKE_SOURCE_DIR}/.deps/libtorch_cuda/torch)
    set(TRAINYARD_TORCH_DIR_DEFAULT ${CMAKE_SOURCE_DIR}/.deps/libtorch_cuda/torch)
  endif()
endif()
set(TRAINYARD_TORCH_DIR ${TRAINYARD_TORCH_DIR_DEFAULT} CACHE PATH "The torch folder of a PyTorch ${TRAINYARD_TORCH_VERSION} installation")

foreach(needed include/ATen/ATen.h lib/libtorch_cpu.so lib/libc10.so version.py)
  if(NOT EXISTS ${TRAINYARD_TORCH_DIR}/${needed})
    message(FATAL_ERROR "LibTorch: ${TRAINYARD_TORCH_DIR}/${needed} not found; run scripts/setup, or pass -DTRAINYARD_TORCH_DIR=<torch folder of PyTorch ${TRAINYARD_TORCH_VERSION}>")
  endif()
endforeach()
file(STRINGS ${TRAINYARD_TORCH_DIR}/version.py torch_version_line REGEX "^__version__ = ")
if(NOT torch_version_line MATCHES "'${TRAINYARD_TORCH_VERSION}[+']")
  message(FATAL_ERROR "LibTorch: ${TRAINYARD_TORCH_DIR}: expected version ${TRAINYARD_TORCH_VERSION}, got ${torch_version_line}")
endif()
# Its strings must be the compiler's: the C++11 ABI.
file(STRINGS ${TRAINYARD_TORCH_DIR}/lib/libc10.so cxx11_abi REGEX "_ZN3c105ErrorC.*__cxx11" LIMIT_COUNT 1)
if(NOT cxx11_abi)
  message(FATAL_ERROR "LibTorch: ${TRAINYARD_TORCH_DIR}/lib/libc10.so was not built with _GLIBCXX_USE_CXX11_ABI=1; use the PyPI wheel (scripts/setup)")
endif()

set(TRAINYARD_TORCH_LINKS ${CMAKE_BINARY_DIR}/libtorch_include)
set(TRAINYARD_TORCH_INCLUDES ATen c10 torch caffe2)
foreach(folder IN LISTS TRAINYARD_TORCH_INCLUDES)
  file(MAKE_DIRECTORY ${TRAINYARD_TORCH_LINKS})
  file(CREATE_LINK ${TRAINYARD_TORCH_DIR}/include/${folder} ${TRAINYARD_TORCH_LINKS}/${folder} SYMBOLIC)
endforeach()

add_library(trainyard::libtorch INTERFACE IMPORTED GLOBAL)
target_include_directories(trainyard::libtorch SYSTEM INTERFACE
  ${TRAINYARD_TORCH_LINKS} ${TRAINYARD_TORCH_LINKS}/torch/csrc/api/include)
# libtorch_cpu finds the CUDA runtime libraries that it needs beside its own folder (nvidia/cu13/lib).
target_link_libraries(trainyard::libtorch INTERFACE
  ${TRAINYARD_TORCH_DIR}/lib/libtorch_cpu.so ${TRAINYARD_TORCH_DIR}/lib/libc10.so)
target_link_options(trainyard::libtorch INTERFACE -Wl,--allow-shlib-undefined)
