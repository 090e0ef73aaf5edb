# The CUDA engine (trainyard/nn/cuda, trainyard/optim/cuda). TRAINYARD_CUDA=AUTO builds it where the toolkit and
# LibTorch's CUDA libraries are there, ON makes what is missing an error, OFF leaves it out. Building needs no GPU, and of
# the libraries behind LibTorch's (cuDNN, cuBLAS, NCCL, ...) none: only running does. Sets TRAINYARD_WITH_CUDA, and
# TRAINYARD_NVJPEG and TRAINYARD_WITH_NCCL where nvjpeg.h and nccl.h are there, too.
set(TRAINYARD_WITH_CUDA OFF)
set(TRAINYARD_NVJPEG OFF)
set(TRAINYARD_WITH_NCCL OFF)

function(trainyard_find_cuda why_not)
  # The toolkit of scripts/setup --cuda compiles but has nothing to run with: it is for those who ask for CUDA by name.
  if(NOT CUDAToolkit_ROOT AND TRAINYARD_CUDA STREQUAL "ON" AND EXISTS ${CMAKE_SOURCE_DIR}/.deps/cuda/bin/nvcc)
    set(CUDAToolkit_ROOT ${CMAKE_SOURCE_DIR}/.deps/cuda CACHE PATH "The CUDA toolkit")
  endif()
  find_package(CUDAToolkit 13.0 QUIET)
  # Traces are CUPTI's, which comes with the toolkit and with PyTorch, whose libraries need it.
  find_path(TRAINYARD_CUPTI_INCLUDE cupti.h
    HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/include ${TRAINYARD_TORCH_DIR}/../nvidia/cu13/include)
  find_library(TRAINYARD_CUPTI_LIBRARY NAMES libcupti.so.13
    HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/lib64 ${TRAINYARD_TORCH_DIR}/../nvidia/cu13/lib)
  set(${why_not} "" PARENT_SCOPE)
  if(TRAINYARD_SANITIZE)
    set(${why_not} "sanitizers do not go with it" PARENT_SCOPE)
  elseif(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
    set(${why_not} "no CUDA toolkit >= 13.0: install cuda-toolkit-13-0 from NVIDIA's repository, or run scripts/setup --cuda" PARENT_SCOPE)
  elseif(NOT EXISTS ${TRAINYARD_TORCH_DIR}/lib/libtorch_cuda.so OR NOT EXISTS ${TRAINYARD_TORCH_DIR}/lib/libc10_cuda.so)
    set(${why_not} "${TRAINYARD_TORCH_DIR}/lib has no libtorch_cuda.so: run scripts/setup --cuda, or pass -DTRAINYARD_TORCH_DIR=<torch folder of a PyTorch with CUDA>" PARENT_SCOPE)
  elseif(NOT TRAINYARD_CUPTI_INCLUDE OR NOT TRAINYARD_CUPTI_LIBRARY)
    set(${why_not} "no CUPTI: install cuda-cupti-dev-13-0 from NVIDIA's repository or nvidia-cuda-cupti from PyPI, or run scripts/setup --cuda" PARENT_SCOPE)
  endif()
  set(CUDAToolkit_NVCC_EXECUTABLE ${CUDAToolkit_NVCC_EXECUTABLE} PARENT_SCOPE)
endfunction()

if(TRAINYARD_CUDA)
  trainyard_find_cuda(cuda_missing)
  if(NOT cuda_missing)
    set(TRAINYARD_WITH_CUDA ON)
  elseif(TRAINYARD_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA engine: left out; ${cuda_missing}")
  else()
    message(FATAL_ERROR "TRAINYARD_CUDA=${TRAINYARD_CUDA}: ${cuda_missing}; or configure with -DTRAINYARD_CUDA=OFF")
  endif()
endif()

if(TRAINYARD_WITH_CUDA)
  find_package(CUDAToolkit 13.0 REQUIRED)  # its targets, in this scope
  set(CMAKE_CUDA_ARCHITECTURES "80;86;89;90;100" CACHE STRING "GPUs that the kernels are compiled for; 90 is the H100 and H200")
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE} CACHE FILEPATH "nvcc")
  # LibTorch brings the runtime as a shared library: one copy in a process.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc speaks C++20.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  target_compile_options(trainyard_settings INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers;--expt-relaxed-constexpr>")
  # For CUDA's own sources. All others are the same with and without CUDA: they find what CUDA's have registered.
  add_library(trainyard::cuda INTERFACE IMPORTED GLOBAL)
  target_include_directories(trainyard::cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS} ${TRAINYARD_CUPTI_INCLUDE})
  target_link_libraries(trainyard::cuda INTERFACE
    ${TRAINYARD_TORCH_DIR}/lib/libtorch_cuda.so ${TRAINYARD_TORCH_DIR}/lib/libc10_cuda.so CUDA::cudart
    ${TRAINYARD_CUPTI_LIBRARY})
  # Decoding of JPEGs on the GPU: a header when building, the library when it is used.
  find_path(TRAINYARD_NVJPEG_INCLUDE nvjpeg.h NO_DEFAULT_PATH
    PATHS ${CUDAToolkit_INCLUDE_DIRS} ${CMAKE_SOURCE_DIR}/.deps/nvjpeg/include ${TRAINYARD_TORCH_DIR}/../nvidia/cu13/include
    DOC "Folder of nvjpeg.h")
  if(TRAINYARD_NVJPEG_INCLUDE)
    set(TRAINYARD_NVJPEG ON)
    target_include_directories(trainyard::cuda SYSTEM INTERFACE ${TRAINYARD_NVJPEG_INCLUDE})
    get_filename_component(nvjpeg_library ${TRAINYARD_NVJPEG_INCLUDE}/../lib ABSOLUTE)
    list(APPEND CMAKE_BUILD_RPATH ${nvjpeg_library})
    message(STATUS "nvJPEG: ${TRAINYARD_NVJPEG_INCLUDE}")
  else()
    message(STATUS "nvJPEG: left out; no nvjpeg.h beside the toolkit's headers: run scripts/setup --cuda")
  endif()
  message(STATUS "CUDA engine: ${CUDAToolkit_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}")
  # NCCL is loaded when it is asked for (trainyard/parallel/collectives/nccl/cuda): its header is all that building needs.
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS}
    ${CMAKE_SOURCE_DIR}/.deps/nccl/include ${TRAINYARD_TORCH_DIR}/../nvidia/nccl/include)
  if(NCCL_INCLUDE_DIR)
    set(TRAINYARD_WITH_NCCL ON)
    add_library(trainyard_nccl INTERFACE)
    target_include_directories(trainyard_nccl SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
    message(STATUS "Several GPUs: by ${NCCL_INCLUDE_DIR}/nccl.h")
  else()
    message(STATUS "Several GPUs: left out; no nccl.h: install libnccl-dev from NVIDIA's repository, or run scripts/setup --cuda")
  endif()
endif()
