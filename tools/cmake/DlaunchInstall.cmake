# cmake --install: headers, libraries, programs and the package that find_package(dlaunch) finds.
# An export set for each part that brings dependencies which not every user has installed.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dlaunch)

get_property(libraries GLOBAL PROPERTY DLAUNCH_LIBRARIES)
foreach(library ${libraries})
  if(library STREQUAL dlaunch_testing)
    set(export dlaunch-testing-targets)
  elseif(library STREQUAL dlaunch_mpi)
    set(export dlaunch-mpi-targets)
  elseif(library STREQUAL dlaunch_cuda)
    set(export dlaunch-cuda-targets)
  elseif(library MATCHES "^dlaunch_nn")
    set(export dlaunch-nn-targets)
  else()
    set(export dlaunch-targets)
  endif()
  install(TARGETS ${library} EXPORT ${export} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  list(APPEND exports ${export})
endforeach()
list(REMOVE_DUPLICATES exports)
foreach(export ${exports})
  install(EXPORT ${export} NAMESPACE dlaunch:: DESTINATION ${package_dir})
endforeach()

set(public_folders runtime transport)
if(DLAUNCH_NN)
  list(APPEND public_folders nn)
endif()
foreach(folder ${public_folders})
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}/"
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dlaunch/${folder} FILES_MATCHING PATTERN "*.h")
endforeach()
install(FILES "${PROJECT_SOURCE_DIR}/tests/support/distributed_test.h"
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dlaunch/tests/support)
install(CODE "set(dlaunch_headers \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/dlaunch\")")
install(SCRIPT "${CMAKE_CURRENT_LIST_DIR}/DlaunchInstalledHeaders.cmake")

# What messages and the manual refer to.
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/README.md" DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs/" DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs
        PATTERN results EXCLUDE PATTERN man EXCLUDE)
if(DLAUNCH_NN)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/configs" DESTINATION ${CMAKE_INSTALL_DATADIR}/dlaunch)
endif()

# In a folder where no find_package looks: it would find the build tree through a PATH that has its bin, and the
# package is whole only when it is installed.
set(package_files ${PROJECT_BINARY_DIR}/package)
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/dlaunch-config.cmake.in"
  "${package_files}/dlaunch-config.cmake"
  INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_BINDIR)
write_basic_package_version_file("${package_files}/dlaunch-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${package_files}/dlaunch-config.cmake"
  "${package_files}/dlaunch-config-version.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/DlaunchFindCudaLibrary.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/DlaunchMpiFlavour.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/DlaunchTesting.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/FindAsio.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/FindcuDNN.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/FindNCCL.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/FindOneDNN.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/Findsodium.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/FindStb.cmake"
  DESTINATION ${package_dir})
