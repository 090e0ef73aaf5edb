# Run at each build (cmake/BuildInfo.cmake): writes OUTPUT, only when the revision of SOURCE has changed.
set(revision unknown)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --short HEAD
    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(revision ${head})
    execute_process(COMMAND ${GIT} -C ${SOURCE} status --porcelain --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      string(APPEND revision "+")
    endif()
  endif()
endif()
set(text "// Written by cmake/GitRevision.cmake.
namespace trainyard::core {
extern const char* const kGitRevision;
const char* const kGitRevision = \"${revision}\";
}  // namespace trainyard::core
")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
