# What can be chosen when configuring, and the compiler and linker settings that every target shares.

set(TRAINYARD_MARCH x86-64-v3 CACHE STRING "Instruction set that all code may use (-march); kernels choose higher ones at run time")
set(TRAINYARD_SANITIZE "" CACHE STRING "Value of -fsanitize= for all our code, empty for none")
set(TRAINYARD_LAST_ROOM "" CACHE STRING "Builds the rooms up to this one, without the program; empty for all")
option(TRAINYARD_HDF5 "Write HDF5 files, by libhdf5" ON)
set(TRAINYARD_IMAGE_FORMATS AUTO CACHE STRING "WebP, GIF, BMP and TIFF: AUTO each where its library is, ON, OFF")
set(TRAINYARD_MPI AUTO CACHE STRING "Training in several processes on CPUs, by Open MPI: AUTO where its header is, ON, OFF")
set(TRAINYARD_GRPC AUTO CACHE STRING "Parameter servers, by gRPC: AUTO where its library is, ON, OFF")
set(TRAINYARD_CUDA AUTO CACHE STRING "The CUDA engine: AUTO where the toolkit is, ON, OFF")
option(TRAINYARD_TESTS "Build the tests" ON)
option(TRAINYARD_UNITY "Compile several sources at a time, tests behind a precompiled header: less work from nothing, more after a change" OFF)
option(TRAINYARD_BENCHMARKS "Build the benchmarks (*_bench.cpp) where Google Benchmark is installed" ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, or Dev (-O1, quick to compile)" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# core/base/export.h shows what is public.
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
# No debug information: with LibTorch's headers it costs a third of the compile time.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEV "-O1")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

# Settings of all our code; a room's objects, tests and benchmarks link it.
add_library(trainyard_settings INTERFACE)
target_include_directories(trainyard_settings INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
# LibTorch's headers include the declarations of the operators that a source names, not of all 2,900: a third of its compile time.
target_compile_definitions(trainyard_settings INTERFACE AT_PER_OPERATOR_HEADERS)
# Designated initializers that name only some members are house style. gcc 12 sees overlapping copies in "text" + string
# when it optimizes (its bug 105651).
target_compile_options(trainyard_settings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wno-missing-field-initializers;$<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-restrict>;-Werror;-march=$<IF:$<BOOL:$<TARGET_PROPERTY:TRAINYARD_KERNEL_MARCH>>,$<TARGET_PROPERTY:TRAINYARD_KERNEL_MARCH>,${TRAINYARD_MARCH}>;-fopenmp>")
# gcc looks for garbage whenever its heap has doubled, which in sources with LibTorch's headers frees nothing and takes a tenth to a
# fifth of the time. Where each core has 3 GiB, it begins at 1 GiB: half as much memory again for a source.
cmake_host_system_information(RESULT trainyard_cores QUERY NUMBER_OF_LOGICAL_CORES)
cmake_host_system_information(RESULT trainyard_mib QUERY TOTAL_PHYSICAL_MEMORY)
math(EXPR trainyard_mib_a_core "${trainyard_mib} / ${trainyard_cores}")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND trainyard_mib_a_core GREATER_EQUAL 3072)
  target_compile_options(trainyard_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1048576>)
endif()
if(TRAINYARD_SANITIZE)
  # LibTorch hides the type information that -fsanitize=vptr asks for. gcc's warnings about data flow see ghosts in
  # instrumented code: the other builds judge warnings.
  target_compile_options(trainyard_settings INTERFACE -Wno-error $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
    -fsanitize=${TRAINYARD_SANITIZE} -fno-sanitize=vptr -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TRAINYARD_SANITIZE})
endif()

# Compilations are timed for scripts/check_build_time.
find_program(TRAINYARD_CCACHE ccache)
if(TRAINYARD_CCACHE)
  # Paths relative to the source folder, so that several checkouts share their compilations.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_PREFIX=${CMAKE_SOURCE_DIR}/scripts/time_compile ${TRAINYARD_CCACHE})
else()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_SOURCE_DIR}/scripts/time_compile)
endif()
find_program(TRAINYARD_MOLD mold)
if(TRAINYARD_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
