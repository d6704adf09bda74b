# dlaunch_add_distributed_test(TARGET [TIMEOUT seconds]) makes the program TARGET a ctest test whose bodies
# run on several ranks: it links dlaunch::testing and GoogleTest's main.
function(dlaunch_add_distributed_test target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 240)
  endif()
  target_link_libraries(${target} PRIVATE dlaunch::testing GTest::gtest_main)
  add_test(NAME ${target} COMMAND ${target})
  set_tests_properties(${target} PROPERTIES TIMEOUT ${arg_TIMEOUT})
endfunction()
