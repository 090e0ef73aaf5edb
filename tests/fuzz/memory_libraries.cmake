# The libraries that decoders wrap, compiled with MemorySanitizer from Debian's sources: `apt-get source libjpeg-turbo libspng
# zlib giflib libtiff libwebp yaml-cpp` in FUZZ_SOURCES, which scripts/fuzz does. Plain C, without vector code in assembly, whose
# writes the sanitizer does not see. libtiff has the compressions that it has by itself: none, PackBits, LZW, CCITT.
include(ExternalProject)

function(find_source result pattern)
  file(GLOB found LIST_DIRECTORIES ON ${FUZZ_SOURCES}/${pattern})
  list(FILTER found EXCLUDE REGEX "\\.(dsc|xz|gz|bz2|asc|deb)$")
  list(LENGTH found count)
  if(NOT count EQUAL 1)
    message(FATAL_ERROR "FUZZ_SOURCES: expected one ${pattern} in ${FUZZ_SOURCES}, got '${found}'")
  endif()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

set(flags "-O1 -g1 -fno-omit-frame-pointer -w -march=x86-64-v3 -fsanitize=fuzzer-no-link,memory -fsanitize-memory-track-origins=1")
function(external name pattern archives)
  find_source(source ${pattern})
  set(prefix ${CMAKE_BINARY_DIR}/libraries/${name})
  list(TRANSFORM archives PREPEND ${prefix}/lib/ OUTPUT_VARIABLE paths)
  ExternalProject_Add(${name}_external SOURCE_DIR ${source} BINARY_DIR ${CMAKE_BINARY_DIR}/libraries/${name}-build
    CMAKE_ARGS -DCMAKE_INSTALL_PREFIX=${prefix} -DCMAKE_INSTALL_LIBDIR=${prefix}/lib -DCMAKE_BUILD_TYPE=None
      -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER} -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DCMAKE_C_FLAGS=${flags}
      -DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY -DBUILD_SHARED_LIBS=OFF ${ARGN}
    BUILD_COMMAND ${CMAKE_COMMAND} --build . -j 1 BUILD_BYPRODUCTS ${paths})
  add_dependencies(fuzzed_data ${name}_external)
  target_include_directories(fuzzed_data BEFORE PUBLIC ${prefix}/include)
  target_link_libraries(fuzzed_data PUBLIC ${paths})
endfunction()

external(jpeg "libjpeg-turbo-*" libjpeg.a -DWITH_SIMD=OFF -DENABLE_SHARED=OFF -DWITH_TURBOJPEG=OFF)
external(tiff "tiff-*" libtiff.a -Dzlib=OFF -Djpeg=OFF -Dzstd=OFF -Dlzma=OFF -Dlibdeflate=OFF -Dwebp=OFF -Djbig=OFF -Dlerc=OFF
  -Dcxx=OFF -Dtiff-tools=OFF -Dtiff-tests=OFF -Dtiff-contrib=OFF -Dtiff-docs=OFF)
# Its vector code is intrinsics, which the sanitizer follows; without it, it compiles by -mno-sse2, which has no floating point.
external(webp "libwebp-*" "libwebpdemux.a;libwebp.a" -DWEBP_BUILD_ANIM_UTILS=OFF -DWEBP_BUILD_CWEBP=OFF
  -DWEBP_BUILD_DWEBP=OFF -DWEBP_BUILD_GIF2WEBP=OFF -DWEBP_BUILD_IMG2WEBP=OFF -DWEBP_BUILD_VWEBP=OFF -DWEBP_BUILD_WEBPINFO=OFF
  -DWEBP_BUILD_WEBPMUX=OFF -DWEBP_BUILD_EXTRAS=OFF)

find_source(zlib "zlib-*")
file(GLOB zlib_sources ${zlib}/*.c)
list(FILTER zlib_sources EXCLUDE REGEX "/gz[a-z]*\\.c$")
find_source(spng "libspng-*")
find_source(gif "giflib-*")
find_source(yaml "yaml-cpp-*")
file(GLOB yaml_sources ${yaml}/src/*.cpp)
add_library(fuzzed_images STATIC ${zlib_sources} ${spng}/spng/spng.c ${gif}/dgif_lib.c ${gif}/gifalloc.c ${gif}/gif_err.c
  ${gif}/gif_hash.c ${gif}/openbsd-reallocarray.c)
target_compile_definitions(fuzzed_images PRIVATE SPNG_STATIC SPNG_DISABLE_OPT)
target_include_directories(fuzzed_images BEFORE PUBLIC ${zlib} ${spng}/spng ${gif})
target_link_libraries(fuzzed_data PUBLIC fuzzed_images m)
add_library(fuzzed_yaml STATIC ${yaml_sources})
target_include_directories(fuzzed_yaml BEFORE PUBLIC ${yaml}/include)
target_link_libraries(fuzzed_core PUBLIC fuzzed_yaml)
