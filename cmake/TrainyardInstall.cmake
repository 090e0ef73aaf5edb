# cmake --install: the library, its headers, the program and what find_package(trainyard) reads. The place of LibTorch is
# recorded in the library's search path and in the package file; another one is -DTRAINYARD_TORCH_DIR for find_package and
# LD_LIBRARY_PATH for the program.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/trainyard)

install(TARGETS trainyard EXPORT trainyard-targets)
if(TARGET trainyard_program)
  install(TARGETS trainyard_program)
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/trainyard DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h"
  # Private: scripts/check_rooms holds that no public header includes one of these.
  PATTERN "testing" EXCLUDE PATTERN "testdata" EXCLUDE PATTERN "cuda" EXCLUDE PATTERN "trainyard/nn/cpu" EXCLUDE PATTERN "trainyard/optim/cpu" EXCLUDE
  PATTERN "trainyard/cli" EXCLUDE)
install(EXPORT trainyard-targets NAMESPACE trainyard:: DESTINATION ${package_folder})
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/trainyard-config.cmake.in ${CMAKE_BINARY_DIR}/trainyard-config.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/trainyard-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/trainyard-config.cmake ${CMAKE_BINARY_DIR}/trainyard-config-version.cmake
  ${CMAKE_SOURCE_DIR}/cmake/LibTorch.cmake DESTINATION ${package_folder})

# A program outside the tree, built against an installed copy. Only where all rooms are built, and not with sanitizers,
# which the program would have to be built with as well.
if(TRAINYARD_TESTS AND NOT TRAINYARD_SANITIZE AND NOT TRAINYARD_LAST_ROOM)
  add_test(NAME Install.ProgramOutsideTheTreeUsesTheLibrary
    COMMAND ${CMAKE_SOURCE_DIR}/tests/install_consumer/run ${CMAKE_BINARY_DIR})
  set_tests_properties(Install.ProgramOutsideTheTreeUsesTheLibrary PROPERTIES TIMEOUT 300)
endif()
