# cmake --install: headers, libraries, programs and the package that find_package(dlaunch) finds.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dlaunch)

get_property(libraries GLOBAL PROPERTY DLAUNCH_LIBRARIES)
install(TARGETS ${libraries} EXPORT dlaunch-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT dlaunch-targets NAMESPACE dlaunch:: DESTINATION ${package_dir})

foreach(folder runtime transport nn tests/support)
  if(folder STREQUAL nn AND NOT DLAUNCH_NN)
    continue()
  endif()
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}/"
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dlaunch/${folder} FILES_MATCHING PATTERN "*.h")
endforeach()

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/dlaunch-config.cmake.in"
  "${PROJECT_BINARY_DIR}/dlaunch-config.cmake" INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/dlaunch-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/dlaunch-config.cmake"
  "${PROJECT_BINARY_DIR}/dlaunch-config-version.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/FindAsio.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/Findsodium.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/FindOneDNN.cmake"
  DESTINATION ${package_dir})
