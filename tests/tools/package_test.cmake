# Installs the build into a folder of its own, moves it, and builds and runs tests/tools/outside against it.
#   cmake -DBUILD=... -DSOURCE=... -DWORK=... -P package_test.cmake
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
run(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${WORK}/first" --strip)
file(RENAME "${WORK}/first" "${WORK}/installed")  # a package may be moved
run(${CMAKE_COMMAND} -S "${SOURCE}/tests/tools/outside" -B "${WORK}/build" -G Ninja
    -DCMAKE_BUILD_TYPE=Debug
    "-DCMAKE_PREFIX_PATH=${WORK}/installed;${PREFIX_PATH}")
run(${CMAKE_COMMAND} --build "${WORK}/build")
run(${CMAKE_CTEST_COMMAND} --test-dir "${WORK}/build" --output-on-failure)
file(REMOVE_RECURSE "${WORK}")
