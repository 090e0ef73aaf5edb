# Compiles a file that fails when oneDNN's or fmt's headers are not the ones of the system's library (see LibTorch.cmake).
add_library(trainyard_header_trap OBJECT ${CMAKE_SOURCE_DIR}/cmake/header_trap.cpp)
target_link_libraries(trainyard_header_trap PRIVATE trainyard_settings trainyard::libtorch fmt::fmt trainyard_dnnl)

string(REPLACE "." ";" dnnl_parts ${DNNL_VERSION})
list(GET dnnl_parts 0 dnnl_major)
list(GET dnnl_parts 1 dnnl_minor)
string(REGEX MATCH "^([0-9]+)\\.([0-9]+)" unused "${fmt_VERSION}")
target_compile_definitions(trainyard_header_trap PRIVATE
  SYSTEM_DNNL_MAJOR=${dnnl_major} SYSTEM_DNNL_MINOR=${dnnl_minor}
  SYSTEM_FMT_MAJOR=${CMAKE_MATCH_1} SYSTEM_FMT_MINOR=${CMAKE_MATCH_2})
