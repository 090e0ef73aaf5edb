# trainyard_room(NAME <room>
#                DEPENDS <rooms above it>            # checked here; the #includes are checked by scripts/check_rooms
#                SUBROOMS <folders>                  # in the order in which they may use each other: scripts/check_rooms
#                SOURCES <x.cpp>...                  # none yet: the room is skipped
#                COLD_SOURCES <x.cpp>...             # that decide and describe: -O1 saves a quarter of their compile time
#                PRECOMPILED_TORCH <y.cpp>...        # sources that need autograd or torch::nn: they share a precompiled header
#                KERNELS <k.cpp>...                  # compiled once an instruction set: nn/cpu/simd/kernels.h
#                BF16_KERNELS <k.cpp>...             # compiled for AVX512_BF16 and AMX only, with the same rules
#                CUDA_SOURCES <z.cu or .cpp>...      # compiled where the CUDA engine is built (cmake/Cuda.cmake)
#                CUDA_PRECOMPILED_TORCH <w.cpp>...   # the same, of those that need autograd
#                CUDA_TESTS <x_test.cpp>...          # the same; on a machine without a GPU they skip themselves
#                TESTS <x_test.cpp>...
#                OPTIMIZED_TESTS <x_test.cpp>...     # tests and their helpers that compute much by themselves: -O1
#                BENCHMARKS <x_bench.cpp>...
#                TESTING <x.cpp>...                  # fakes and fault injectors, for the tests of this and of all rooms below
#                FUZZ <x_fuzz.cpp>...                # each a program of its own: trainyard_fuzz below
#                LIBRARIES <targets>                 # beyond LibTorch, fmt and OpenMP, which every room has
#                NOTHING_HOT                         # all SOURCES are COLD_SOURCES
#                NO_LIBTORCH                         # a room without LibTorch: its sources are compiled without its headers
#                TEST_LIBRARIES <targets>)           # of the tests and the benchmarks
#
# makes the OBJECT library trainyard_<room>, part of libtrainyard.so; the test program trainyard_<room>_test, whose suites are
# tests of CTest in groups; and the benchmark program trainyard_<room>_bench.
# Names for LIBRARIES: trainyard_jpeg, trainyard_spng, trainyard_images (the optional formats), trainyard_yaml, trainyard_dnnl, trainyard_json, trainyard_hdf5, trainyard_grpc, trainyard_log
# (spdlog). protozero is header-only and needs none.

function(trainyard_room)
  cmake_parse_arguments(ROOM "NO_LIBTORCH;NOTHING_HOT" "NAME"
    "DEPENDS;SUBROOMS;SOURCES;COLD_SOURCES;TESTING;PRECOMPILED_TORCH;KERNELS;BF16_KERNELS;CUDA_SOURCES;CUDA_PRECOMPILED_TORCH;CUDA_TESTS;TESTS;OPTIMIZED_TESTS;BENCHMARKS;FUZZ;LIBRARIES;TEST_LIBRARIES" ${ARGN})
  if(ROOM_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "trainyard_room(${ROOM_NAME}): unknown arguments ${ROOM_UNPARSED_ARGUMENTS}")
  endif()
  list(FIND TRAINYARD_ROOMS "${ROOM_NAME}" own_place)
  if(own_place EQUAL -1)
    message(FATAL_ERROR "trainyard_room: ${ROOM_NAME} is not in TRAINYARD_ROOMS (CMakeLists.txt)")
  endif()
  foreach(other IN LISTS ROOM_DEPENDS)
    list(FIND TRAINYARD_ROOMS "${other}" other_place)
    if(other_place EQUAL -1 OR NOT other_place LESS own_place)
      message(FATAL_ERROR "trainyard_room(${ROOM_NAME}): may not depend on ${other}: a room uses rooms above it only (${TRAINYARD_ROOMS})")
    endif()
  endforeach()
  if(NOT ROOM_SOURCES AND NOT ROOM_COLD_SOURCES AND NOT ROOM_PRECOMPILED_TORCH)
    return()
  endif()

  set(libraries ${ROOM_LIBRARIES})
  if(NOT ROOM_NO_LIBTORCH)
    list(APPEND libraries trainyard::libtorch)
  endif()
  set(parts "")
  if(TRAINYARD_WITH_CUDA AND ROOM_CUDA_SOURCES)
    # Objects of their own: all others are compiled as without CUDA, and shared with builds without.
    trainyard_objects(trainyard_${ROOM_NAME}_cuda "${libraries};trainyard::cuda" ${ROOM_CUDA_SOURCES})
    list(APPEND parts trainyard_${ROOM_NAME}_cuda)
    if(ROOM_CUDA_PRECOMPILED_TORCH)
      trainyard_objects(trainyard_${ROOM_NAME}_cuda_torch "${libraries};trainyard::cuda" ${ROOM_CUDA_PRECOMPILED_TORCH})
      trainyard_precompile(trainyard_${ROOM_NAME}_cuda_torch torch_pch trainyard::libtorch)
      list(APPEND parts trainyard_${ROOM_NAME}_cuda_torch)
    endif()
    set_property(GLOBAL APPEND PROPERTY TRAINYARD_LIBRARIES trainyard::cuda)
  endif()
  # Optimizes a little: a multiplication and an addition are fused as in the rest.
  set(cold_level -O1 -fexpensive-optimizations)
  if(ROOM_NOTHING_HOT)
    list(APPEND ROOM_COLD_SOURCES ${ROOM_SOURCES})
    set(ROOM_SOURCES "")
  endif()
  if(ROOM_SOURCES)
    trainyard_objects(trainyard_${ROOM_NAME} "${libraries}" ${ROOM_SOURCES})
    trainyard_unity(trainyard_${ROOM_NAME} 19)
    if(TRAINYARD_UNITY)
      trainyard_precompile(trainyard_${ROOM_NAME} library_pch trainyard::libtorch)
    endif()
    list(APPEND parts trainyard_${ROOM_NAME})
  endif()
  if(ROOM_COLD_SOURCES)
    trainyard_objects(trainyard_${ROOM_NAME}_cold "${libraries}" ${ROOM_COLD_SOURCES})
    target_compile_options(trainyard_${ROOM_NAME}_cold PRIVATE ${cold_level})
    trainyard_unity(trainyard_${ROOM_NAME}_cold 19)
    if(TRAINYARD_UNITY)
      trainyard_precompile(trainyard_${ROOM_NAME}_cold library_pch trainyard::libtorch ${cold_level})
    endif()
    list(APPEND parts trainyard_${ROOM_NAME}_cold)
  endif()
  if(ROOM_PRECOMPILED_TORCH)
    trainyard_objects(trainyard_${ROOM_NAME}_torch "${libraries}" ${ROOM_PRECOMPILED_TORCH})
    trainyard_unity(trainyard_${ROOM_NAME}_torch 19)
    trainyard_precompile_torch(trainyard_${ROOM_NAME}_torch)
    list(APPEND parts trainyard_${ROOM_NAME}_torch)
  endif()
  if(ROOM_KERNELS)
    # -O3 in every build: without it these loops are slower than no kernel at all.
    trainyard_objects(trainyard_${ROOM_NAME}_avx2 "" ${ROOM_KERNELS})
    target_compile_options(trainyard_${ROOM_NAME}_avx2 PRIVATE -O3)
    set_target_properties(trainyard_${ROOM_NAME}_avx2 PROPERTIES TRAINYARD_KERNEL_MARCH x86-64-v3)
    trainyard_objects(trainyard_${ROOM_NAME}_avx512 "" ${ROOM_KERNELS})
    target_compile_options(trainyard_${ROOM_NAME}_avx512 PRIVATE -O3 -mprefer-vector-width=512)
    set_target_properties(trainyard_${ROOM_NAME}_avx512 PROPERTIES TRAINYARD_KERNEL_MARCH x86-64-v4)
    target_compile_definitions(trainyard_${ROOM_NAME}_avx512 PRIVATE TRAINYARD_KERNELS_AVX512)
    list(APPEND parts trainyard_${ROOM_NAME}_avx2 trainyard_${ROOM_NAME}_avx512)
  endif()
  if(ROOM_BF16_KERNELS)
    trainyard_objects(trainyard_${ROOM_NAME}_bf16 "" ${ROOM_BF16_KERNELS})
    target_compile_options(trainyard_${ROOM_NAME}_bf16 PRIVATE -O3 -mprefer-vector-width=512 -mavx512bf16 -mamx-tile -mamx-bf16)
    set_target_properties(trainyard_${ROOM_NAME}_bf16 PROPERTIES TRAINYARD_KERNEL_MARCH x86-64-v4)
    target_compile_definitions(trainyard_${ROOM_NAME}_bf16 PRIVATE TRAINYARD_KERNELS_AVX512)
    list(APPEND parts trainyard_${ROOM_NAME}_bf16)
  endif()
  set_property(GLOBAL APPEND PROPERTY TRAINYARD_BUILT_ROOMS ${ROOM_NAME})
  set_property(GLOBAL APPEND PROPERTY TRAINYARD_PARTS ${parts})
  set_property(GLOBAL APPEND PROPERTY TRAINYARD_LIBRARIES ${ROOM_LIBRARIES})

  if(TRAINYARD_TESTS AND ROOM_TESTING)
    add_library(trainyard_${ROOM_NAME}_testing STATIC ${ROOM_TESTING})
    target_link_libraries(trainyard_${ROOM_NAME}_testing PRIVATE trainyard_settings fmt::fmt ${libraries})
    target_compile_options(trainyard_${ROOM_NAME}_testing PRIVATE -O1)
    trainyard_unity(trainyard_${ROOM_NAME}_testing 19)
    set_property(GLOBAL APPEND PROPERTY TRAINYARD_TESTING trainyard_${ROOM_NAME}_testing)
  endif()
  get_property(testing GLOBAL PROPERTY TRAINYARD_TESTING)
  if(TRAINYARD_TESTS AND ROOM_TESTS)
    set(program trainyard_${ROOM_NAME}_test)
    set(gtest GTest::gmock GTest::gtest)
    add_executable(${program} ${ROOM_TESTS})
    # Without optimization, which costs more than most of them take to run. A test of an error calls functions for what they throw
    # alone.
    target_compile_options(${program} PRIVATE -O0 -Wno-unused-result)
    target_link_libraries(${program} PRIVATE ${testing} trainyard_inside trainyard_settings ${ROOM_LIBRARIES} ${ROOM_TEST_LIBRARIES}
      ${gtest} GTest::gtest_main)
    # Tests run in the source folder. It is compiled in as ".", not by its full name, so that checkouts share compilations.
    target_compile_definitions(${program} PRIVATE TRAINYARD_SOURCE_DIR=".")
    trainyard_unity(${program} 8)
    if(TRAINYARD_UNITY)
      # -fPIE: an object library, as which the header is precompiled, has -fPIC, the programs do not.
      trainyard_precompile(${program} test_pch "trainyard::libtorch;${gtest}" -O0 -fPIE)
    endif()
    if(ROOM_OPTIMIZED_TESTS)
      trainyard_objects(${program}_optimized "trainyard::libtorch;${ROOM_LIBRARIES};${ROOM_TEST_LIBRARIES};${gtest}" ${ROOM_OPTIMIZED_TESTS})
      target_compile_options(${program}_optimized PRIVATE -O1 -Wno-unused-result)
      target_compile_definitions(${program}_optimized PRIVATE TRAINYARD_SOURCE_DIR=".")
      trainyard_unity(${program}_optimized 8)
      target_link_libraries(${program} PRIVATE ${program}_optimized)
    endif()
    if(TRAINYARD_WITH_CUDA AND ROOM_CUDA_TESTS)
      trainyard_objects(${program}_cuda "trainyard::libtorch;trainyard::cuda;GTest::gmock;GTest::gtest" ${ROOM_CUDA_TESTS})
      target_compile_options(${program}_cuda PRIVATE -O1)
      target_link_libraries(${program} PRIVATE ${program}_cuda)
    endif()
    trainyard_test_groups(${program} ${ROOM_NAME})
  endif()
  foreach(source IN LISTS ROOM_FUZZ)
    trainyard_fuzz(${ROOM_NAME} ${source})
  endforeach()
  if(TRAINYARD_BENCHMARKS AND benchmark_FOUND AND ROOM_BENCHMARKS)
    set(program trainyard_${ROOM_NAME}_bench)
    add_executable(${program} ${ROOM_BENCHMARKS})
    target_link_libraries(${program} PRIVATE trainyard_inside trainyard_settings ${ROOM_LIBRARIES} ${ROOM_TEST_LIBRARIES} benchmark::benchmark_main)
  endif()
endfunction()

# The program's tests as tests of CTest, several suites or a part of one a process: cmake/test_groups.cmake.in.
function(trainyard_test_groups program room)
  set(executable ${CMAKE_BINARY_DIR}/${program})
  set(script ${CMAKE_CURRENT_BINARY_DIR}/${program}_groups.cmake)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/test_groups.cmake.in ${script} @ONLY)
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${script})
endfunction()

# A fuzz target: <parser>_fuzz.cpp defines LLVMFuzzerTestOneInput, trainyard/<room>/testdata/fuzz/<parser>/ holds its corpus. Here
# it replays that, which is the test Fuzz.<parser>; tests/fuzz builds it with libFuzzer.
function(trainyard_fuzz room source)
  get_filename_component(parser ${source} NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" parser ${parser})
  set(program trainyard_${parser}_fuzz)
  set(corpus ${CMAKE_SOURCE_DIR}/trainyard/${room}/testdata/fuzz/${parser})
  if(NOT TRAINYARD_TESTS)
    return()
  endif()
  add_executable(${program} ${source} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay.cpp)
  add_test(NAME Fuzz.${parser} COMMAND ${program} ${corpus} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(Fuzz.${parser} PROPERTIES LABELS ${room} TIMEOUT 60)
  target_compile_definitions(${program} PRIVATE TRAINYARD_SOURCE_DIR=".")  # as for tests, whose helpers they share
  target_compile_options(${program} PRIVATE -Wno-unused-result)              # as for tests
  target_link_libraries(${program} PRIVATE trainyard_inside trainyard_settings ${ROOM_LIBRARIES})
endfunction()

function(trainyard_objects target libraries)
  add_library(${target} OBJECT ${ARGN})
  target_link_libraries(${target} PRIVATE trainyard_settings fmt::fmt ${libraries})
endfunction()

# Compiles the target's sources several at a time, in the order of the list: what they include is parsed once for all of them.
# So names in anonymous namespaces differ within a room; a test and a network have a namespace with the name of their file. Not
# for kernels: what is inlined where may decide which products and sums are fused, and so their bits. One warning takes what is
# included for a header; the dev build has it on.
function(trainyard_unity target most_sources)
  if(NOT TRAINYARD_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  math(EXPR units "(${count} + ${most_sources} - 1) / ${most_sources}")
  set(place 0)
  foreach(source IN LISTS sources)
    math(EXPR unit "${place} * ${units} / ${count}")
    math(EXPR place "${place} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${unit})
  endforeach()
endfunction()

# Precompiles cmake/<name>.h, once for all targets that ask for it with the same options, and includes it in the target's sources.
# Targets that share it compile with the same options, too, -O and -fPIC among them: gcc 12 refuses a header compiled with others
# or, where it does not, crashes.
function(trainyard_precompile target name libraries)
  string(REGEX REPLACE "[^A-Za-z0-9]+" "_" header "trainyard_${name}${ARGN}")
  if(NOT TARGET ${header})
    file(WRITE ${CMAKE_BINARY_DIR}/${header}.cpp "")
    trainyard_objects(${header} "${libraries}" ${CMAKE_BINARY_DIR}/${header}.cpp)
    target_precompile_headers(${header} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/${name}.h)
    target_compile_options(${header} PRIVATE -fpch-preprocess ${ARGN})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${header})
  # gcc 12 sees text being written behind a text's end once its headers are precompiled (its bug 105329); the dev build keeps both.
  target_compile_options(${target} PRIVATE -fpch-preprocess $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds$<SEMICOLON>-Wno-stringop-overflow>)
endfunction()

# For sources that need autograd or torch::nn, whose headers take 10 s to parse and 20 s to precompile: that pays where many sources
# are compiled one by one, not where they are compiled together.
function(trainyard_precompile_torch target)
  if(NOT TRAINYARD_UNITY)
    trainyard_precompile(${target} torch_pch trainyard::libtorch)
  endif()
endfunction()

# libtrainyard.so, of all rooms. A static library would lose the files that only register themselves.
function(trainyard_library)
  get_property(parts GLOBAL PROPERTY TRAINYARD_PARTS)
  get_property(libraries GLOBAL PROPERTY TRAINYARD_LIBRARIES)
  list(REMOVE_DUPLICATES libraries)
  set(objects ${parts})
  list(TRANSFORM objects REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
  add_library(trainyard SHARED ${objects})
  add_library(trainyard::trainyard ALIAS trainyard)
  target_include_directories(trainyard INTERFACE
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}> $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/generated> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(trainyard INTERFACE cxx_std_20)
  target_link_libraries(trainyard PUBLIC trainyard::libtorch fmt::fmt PRIVATE ${libraries} OpenMP::OpenMP_CXX Threads::Threads)
  # Until 1.0 a minor version may change the interface, as the package's version file says, too.
  set_target_properties(trainyard PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/exported.map)
  target_link_options(trainyard PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/exported.map)

  # What tests and benchmarks link instead: the same objects, with what the shared library hides.
  add_library(trainyard_inside INTERFACE)
  target_link_libraries(trainyard_inside INTERFACE ${objects} trainyard::libtorch fmt::fmt ${libraries} OpenMP::OpenMP_CXX
    Threads::Threads)
  target_include_directories(trainyard_inside INTERFACE ${CMAKE_SOURCE_DIR})
endfunction()

# The program, once the command line's room has sources.
function(trainyard_program)
  get_property(rooms GLOBAL PROPERTY TRAINYARD_BUILT_ROOMS)
  if(NOT "cli" IN_LIST rooms)
    return()
  endif()
  add_executable(trainyard_program ${CMAKE_SOURCE_DIR}/apps/trainyard_main.cpp)
  set_target_properties(trainyard_program PROPERTIES OUTPUT_NAME trainyard)
  target_link_libraries(trainyard_program PRIVATE trainyard trainyard_settings)
endfunction()
