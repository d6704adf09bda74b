# Installs the build into a folder of its own, moves it, and builds and runs tests/tools/outside against it.
#   cmake -DBUILD=... -DSOURCE=... -DWORK=... -P package_test.cmake
# Lists of folders stay whole: no function stands between, whose arguments would be split at their semicolons.
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
execute_process(COMMAND ${CMAKE_COMMAND} --install "${BUILD}" --prefix "${WORK}/first" --strip COMMAND_ERROR_IS_FATAL ANY)
file(RENAME "${WORK}/first" "${WORK}/installed")  # a package may be moved
foreach(file share/doc/dlaunch/LICENSE share/doc/dlaunch/docs/launcher.md share/man/man1/dlaunch.1
        share/man/man1/dstore.1)
  if(NOT EXISTS "${WORK}/installed/${file}")
    message(FATAL_ERROR "${file} is not installed")
  endif()
endforeach()
set(configure ${CMAKE_COMMAND} -S "${SOURCE}/tests/tools/outside" -G Ninja -DCMAKE_BUILD_TYPE=Debug)
execute_process(COMMAND ${configure} -B "${WORK}/build" "-DCMAKE_PREFIX_PATH=${WORK}/installed;${PREFIX_PATH}"
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build "${WORK}/build" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_CTEST_COMMAND} --test-dir "${WORK}/build" --output-on-failure COMMAND_ERROR_IS_FATAL ANY)

# The examples, which are such programs too.
set(examples ${CMAKE_COMMAND} -S "${SOURCE}/docs/examples" -G Ninja -DCMAKE_BUILD_TYPE=Debug)
execute_process(COMMAND ${examples} -B "${WORK}/examples" "-DCMAKE_PREFIX_PATH=${WORK}/installed;${PREFIX_PATH}"
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build "${WORK}/examples" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_CTEST_COMMAND} --test-dir "${WORK}/examples" --output-on-failure COMMAND_ERROR_IS_FATAL ANY)

# What is missing of a component that is required is named.
execute_process(COMMAND ${configure} -B "${WORK}/without" "-DCMAKE_PREFIX_PATH=${WORK}/installed;${PREFIX_PATH}"
                        -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON
                RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE errors)
if(code EQUAL 0 OR NOT errors MATCHES "testing: find_package\\(GTest\\) gives no")
  message(FATAL_ERROR "without GTest the component testing should not be found, and say so:\n${errors}")
endif()

# Of a component that there is not, those are named that there are.
file(WRITE "${WORK}/misspelt/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)
project(misspelt LANGUAGES CXX)
find_package(dlaunch REQUIRED COMPONENTS tests)\n")
execute_process(COMMAND ${CMAKE_COMMAND} -S "${WORK}/misspelt" -B "${WORK}/misspelt/build" -G Ninja
                        "-DCMAKE_PREFIX_PATH=${WORK}/installed;${PREFIX_PATH}"
                RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE errors)
string(REGEX REPLACE "[ \n]+" " " errors "${errors}")  # CMake breaks lines
if(code EQUAL 0 OR NOT errors MATCHES "tests: there is no such component, only runtime, testing, mpi, cuda, nn")
  message(FATAL_ERROR "there is no component tests:\n${errors}")
endif()

# As part of another project it leaves that one's build type, here none, as it is; serves that one's tests; and adds
# nothing to what that one installs.
file(WRITE "${WORK}/around/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)
project(around LANGUAGES CXX)
add_subdirectory(\"${SOURCE}\" dlaunch)
if(CMAKE_BUILD_TYPE)
  message(FATAL_ERROR \"dlaunch has set the build type to \${CMAKE_BUILD_TYPE}\")
endif()
enable_testing()
add_executable(sum_test \"${SOURCE}/docs/examples/sum_test.cc\")
dlaunch_add_distributed_test(sum_test)\n")
execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=CMAKE_BUILD_TYPE
                ${CMAKE_COMMAND} -S "${WORK}/around" -B "${WORK}/around/build" -G Ninja -DDLAUNCH_NN=OFF
                        "-DCMAKE_PREFIX_PATH=${PREFIX_PATH}"
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --install "${WORK}/around/build" --prefix "${WORK}/around/installed"
                COMMAND_ERROR_IS_FATAL ANY)
if(EXISTS "${WORK}/around/installed")
  message(FATAL_ERROR "as part of another project dlaunch installs something")
endif()
file(REMOVE_RECURSE "${WORK}")
