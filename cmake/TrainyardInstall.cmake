# cmake --install: two components. "runtime" is the program, the library and, with TRAINYARD_BUNDLE_LIBTORCH, the libraries of
# LibTorch that a CPU needs; "development" is the public headers (PublicHeaders.cmake), LibTorch's headers and what
# find_package(trainyard) reads. A bundled copy may be moved: all its paths are relative.
include(CMakePackageConfigHelpers)
include(PublicHeaders)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/trainyard)

# A torch folder as scripts/setup unpacks it for CPUs: libtorch_cpu finds the CUDA libraries that it is linked with in
# ../nvidia, so both are copied as they stand.
get_filename_component(libtorch_root ${TRAINYARD_TORCH_DIR}/.. ABSOLUTE)
set(libtorch_cuda_libraries ${libtorch_root}/nvidia/cu13/lib/libcudart.so.13 ${libtorch_root}/nvidia/cu13/lib/libcupti.so.13)
set(can_bundle ON)
foreach(needed IN LISTS libtorch_cuda_libraries)
  if(TRAINYARD_WITH_CUDA OR NOT EXISTS ${needed})
    set(can_bundle OFF)
  endif()
endforeach()
option(TRAINYARD_BUNDLE_LIBTORCH "Install LibTorch's libraries and headers with the library; OFF: an installed copy uses TRAINYARD_TORCH_DIR" ${can_bundle})
if(TRAINYARD_BUNDLE_LIBTORCH AND NOT can_bundle)
  message(FATAL_ERROR "TRAINYARD_BUNDLE_LIBTORCH: only LibTorch for CPUs as scripts/setup unpacks it is bundled, and not with CUDA; got ${TRAINYARD_TORCH_DIR}")
endif()

if(TRAINYARD_BUNDLE_LIBTORCH)
  set(libtorch_place ${CMAKE_INSTALL_LIBDIR}/trainyard)
  set(library_rpath $ORIGIN/trainyard/torch/lib)
  install(FILES ${TRAINYARD_TORCH_DIR}/lib/libtorch_cpu.so ${TRAINYARD_TORCH_DIR}/lib/libc10.so
    DESTINATION ${libtorch_place}/torch/lib COMPONENT runtime)
  install(FILES ${libtorch_cuda_libraries} DESTINATION ${libtorch_place}/nvidia/cu13/lib COMPONENT runtime)
  install(FILES ${TRAINYARD_TORCH_DIR}/version.py DESTINATION ${libtorch_place}/torch COMPONENT development)
  foreach(folder IN LISTS TRAINYARD_TORCH_INCLUDES)
    install(DIRECTORY ${TRAINYARD_TORCH_DIR}/include/${folder} DESTINATION ${libtorch_place}/torch/include COMPONENT development)
  endforeach()
  set(config_torch_dir "\${PACKAGE_PREFIX_DIR}/${libtorch_place}/torch")
else()
  set(library_rpath ${TRAINYARD_TORCH_DIR}/lib)
  set(config_torch_dir ${TRAINYARD_TORCH_DIR})
endif()

install(TARGETS trainyard EXPORT trainyard-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
set_target_properties(trainyard PROPERTIES INSTALL_RPATH "${library_rpath}")
if(TARGET trainyard_program)
  install(TARGETS trainyard_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  file(RELATIVE_PATH to_library /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(trainyard_program PROPERTIES INSTALL_RPATH "$ORIGIN/${to_library}")
  # Manual pages and completions, which the program writes from its flags' declarations.
  install(CODE "
    set(share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
    execute_process(COMMAND \"$<TARGET_FILE:trainyard_program>\" help \"--man_pages=\${share}/man/man1\" COMMAND_ERROR_IS_FATAL ANY)
    foreach(completion bash:bash-completion/completions/trainyard zsh:zsh/vendor-completions/_trainyard
            fish:fish/vendor_completions.d/trainyard.fish)
      string(REGEX MATCH \"^([a-z]+):(.*)\" matched \${completion})
      get_filename_component(folder \"\${share}/\${CMAKE_MATCH_2}\" DIRECTORY)
      file(MAKE_DIRECTORY \${folder})
      execute_process(COMMAND \"$<TARGET_FILE:trainyard_program>\" completion \${CMAKE_MATCH_1}
                      OUTPUT_FILE \"\${share}/\${CMAKE_MATCH_2}\" COMMAND_ERROR_IS_FATAL ANY)
    endforeach()" COMPONENT runtime)
endif()
install(DIRECTORY recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/trainyard COMPONENT runtime)

foreach(header IN LISTS TRAINYARD_PUBLIC_HEADERS)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder} COMPONENT development)
endforeach()
install(FILES ${CMAKE_BINARY_DIR}/generated/trainyard/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trainyard COMPONENT development)
install(EXPORT trainyard-targets NAMESPACE trainyard:: DESTINATION ${package_folder} COMPONENT development)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/trainyard-config.cmake.in ${CMAKE_BINARY_DIR}/trainyard-config.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/trainyard-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/trainyard-config.cmake ${CMAKE_BINARY_DIR}/trainyard-config-version.cmake
  ${CMAKE_SOURCE_DIR}/cmake/LibTorch.cmake DESTINATION ${package_folder} COMPONENT development)

# What users see of the headers, with the flags that they compile with: gcc's messages, which other compilers word otherwise.
if(TRAINYARD_TESTS AND NOT TRAINYARD_LAST_ROOM AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(public_flags -std=c++20 "-I$<JOIN:$<TARGET_PROPERTY:trainyard,INTERFACE_INCLUDE_DIRECTORIES>,$<SEMICOLON>-I>"
    "-isystem$<JOIN:$<TARGET_PROPERTY:trainyard::libtorch,INTERFACE_INCLUDE_DIRECTORIES>,$<SEMICOLON>-isystem>")
  add_test(NAME PublicHeaders.MistakesAreNamed COMMAND ${CMAKE_SOURCE_DIR}/tests/compile_errors/run ${CMAKE_CXX_COMPILER} ${public_flags}
    COMMAND_EXPAND_LISTS)
  set_tests_properties(PublicHeaders.MistakesAreNamed PROPERTIES TIMEOUT 600)
endif()

# Only where all rooms are built, and not with sanitizers, with which what links the library would have to be built as well.
if(TRAINYARD_TESTS AND NOT TRAINYARD_SANITIZE AND NOT TRAINYARD_LAST_ROOM)
  # A program outside the tree, built against an installed copy.
  add_test(NAME Install.ProgramOutsideTheTreeUsesTheLibrary
    COMMAND ${CMAKE_SOURCE_DIR}/tests/install_consumer/run ${CMAKE_BINARY_DIR})
  set_tests_properties(Install.ProgramOutsideTheTreeUsesTheLibrary PROPERTIES TIMEOUT 600)
  # The optimizer and the parts that are built decide what else is there, so the list is of one build.
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT TRAINYARD_WITH_CUDA)
    add_test(NAME Abi.ExportedSymbolsAreThoseOfTheList
      COMMAND ${CMAKE_SOURCE_DIR}/scripts/check_abi $<TARGET_FILE:trainyard>)
  endif()
endif()
