# The values behind trainyard/core/base/build_info.h: build_values.h and version.h when configuring, the git revision at each build.
configure_file(${CMAKE_SOURCE_DIR}/cmake/version.h.in ${CMAKE_BINARY_DIR}/generated/trainyard/version.h)
configure_file(${CMAKE_SOURCE_DIR}/cmake/build_values.h.in ${CMAKE_BINARY_DIR}/generated/build_values.h)

find_package(Git QUIET)
add_custom_target(trainyard_git_revision
  COMMAND ${CMAKE_COMMAND} -DGIT=${GIT_EXECUTABLE} -DSOURCE=${CMAKE_SOURCE_DIR}
    -DOUTPUT=${CMAKE_BINARY_DIR}/generated/git_revision.cpp -P ${CMAKE_SOURCE_DIR}/cmake/GitRevision.cmake
  BYPRODUCTS ${CMAKE_BINARY_DIR}/generated/git_revision.cpp
  COMMENT "Looking up the git revision" VERBATIM)
add_library(trainyard_build_values OBJECT ${CMAKE_BINARY_DIR}/generated/git_revision.cpp)
add_dependencies(trainyard_build_values trainyard_git_revision)
target_link_libraries(trainyard_build_values PRIVATE trainyard_settings)
set_property(GLOBAL APPEND PROPERTY TRAINYARD_PARTS trainyard_build_values)
