# Compiler settings of the project's own targets, and the two functions that make them.

# The sanitizer build: with frames and lines for the reports, and no more than those. Above -Og compiling
# what is instrumented takes longer than the tests gain by it.
set(CMAKE_CXX_FLAGS_SANITIZE "-Og -g1 -fno-omit-frame-pointer")
set(CMAKE_EXE_LINKER_FLAGS_SANITIZE "")

find_program(DLAUNCH_CCACHE ccache)
if(DLAUNCH_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND PROJECT_IS_TOP_LEVEL)
  # What a cache of compilations with precompiled headers asks for; with GCC, -fpch-preprocess too.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${DLAUNCH_CCACHE}")
endif()

add_library(dlaunch_settings INTERFACE)
target_compile_features(dlaunch_settings INTERFACE cxx_std_20)
target_compile_options(dlaunch_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
  -Wall -Wextra -Wpedantic -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough
  -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local>
  $<$<CXX_COMPILER_ID:Clang>:-Wno-unknown-pragmas>
  $<$<BOOL:${DLAUNCH_WARNINGS_ARE_ERRORS}>:-Werror>>)
if(CMAKE_UNITY_BUILD)
  # A source with anonymous types is then "included", by a file that nobody else includes.
  target_compile_options(dlaunch_settings INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  # Joined sources take a compiler more than 1 GiB, and Ninja starts two more of them than there are cores. Where memory is
  # short, fewer; where it is plenty, each takes a GiB before it looks for what is free again: a seventh of its time.
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  cmake_host_system_information(RESULT mebibytes QUERY TOTAL_PHYSICAL_MEMORY)
  math(EXPR share "${mebibytes} / (${cores} + 2)")
  if(share GREATER 3000)
    target_compile_options(dlaunch_settings INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1048576>)
  elseif(share LESS 1500)
    math(EXPR jobs "1 + ${mebibytes} / 2000")
    set_property(GLOBAL APPEND PROPERTY JOB_POOLS compile=${jobs})
    set(CMAKE_JOB_POOL_COMPILE compile)
  endif()
endif()
if(DLAUNCH_SANITIZE)
  target_compile_options(dlaunch_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${DLAUNCH_SANITIZE}>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)  # GCC gives false alarms in instrumented code
  target_link_options(dlaunch_settings INTERFACE -fsanitize=${DLAUNCH_SANITIZE})
  if(DLAUNCH_SANITIZE MATCHES "undefined")
    # Null pointers and what lies outside of an object AddressSanitizer finds, too; looking for them twice, and at types
    # behind pointers, takes half as long again to compile. Tests are not what is tested: a quarter of theirs.
    set(unsought $<IF:$<BOOL:$<TARGET_PROPERTY:DLAUNCH_TEST>>,undefined,null$<COMMA>object-size$<COMMA>vptr>)
    target_compile_options(dlaunch_settings INTERFACE
      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined$<SEMICOLON>-fno-sanitize=${unsought}>)
  endif()
  if(DLAUNCH_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # What overruns a test's own variables is not sought: to guard each of its many takes a third of compiling it.
    target_compile_options(dlaunch_settings INTERFACE
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:$<TARGET_PROPERTY:DLAUNCH_TEST>>>:--param=asan-stack=0>)
    # add_compile_options() for folders of arithmetic: what outlives its function is sought where callbacks are. Small
    # functions that are called for every element take twice the time with it.
    set(dlaunch_arithmetic $<$<COMPILE_LANGUAGE:CXX>:--param=asan-use-after-return=0>)
  endif()
  if(DLAUNCH_SANITIZE MATCHES "thread")
    # ThreadSanitizer knows no fences (-Werror=tsan); Asio does without them where it locks anyway.
    target_compile_definitions(dlaunch_settings INTERFACE ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()

# Libraries from a folder of their own (CMAKE_PREFIX_PATH) find each other there: as DT_RPATH, unlike
# DT_RUNPATH, the path serves the libraries' own dependencies too.
add_link_options(-Wl,--disable-new-dtags)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

# Outside programs include <dlaunch/runtime/comm/communicator.h>; this link gives the build tree the
# same spelling as an installed package.
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/include")
file(CREATE_LINK "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/include/dlaunch" SYMBOLIC)

# dlaunch_library(NAME SOURCES...) makes the static library dlaunch_NAME, known to users as
# dlaunch::NAME, and puts it into the installed package.
function(dlaunch_library name)
  add_library(dlaunch_${name} STATIC ${ARGN})
  add_library(dlaunch::${name} ALIAS dlaunch_${name})
  set_target_properties(dlaunch_${name} PROPERTIES
    EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
  target_compile_features(dlaunch_${name} PUBLIC cxx_std_20)
  target_include_directories(dlaunch_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(dlaunch_${name} PRIVATE $<BUILD_INTERFACE:dlaunch_settings>)
  set_property(GLOBAL APPEND PROPERTY DLAUNCH_LIBRARIES dlaunch_${name})
endfunction()

# dlaunch_program(NAME SOURCES...) makes build/bin/NAME and, with DLAUNCH_INSTALL, installs it.
function(dlaunch_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE dlaunch_settings)
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF)
  if(NOT DLAUNCH_INSTALL)
    return()
  endif()
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(EXISTS "${PROJECT_SOURCE_DIR}/docs/man/${name}.1")
    install(FILES "${PROJECT_SOURCE_DIR}/docs/man/${name}.1" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endif()
endfunction()
