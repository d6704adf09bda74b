# dlaunch_find_cuda_library(NAME HEADER LIBRARY) -> NAME::NAME: in the CUDA Toolkit's folders or the system's
# (-DNAME_INCLUDE_DIR=, -DNAME_LIBRARY=). What FindNAME.cmake consists of.
include(FindPackageHandleStandardArgs)
macro(dlaunch_find_cuda_library name header library)
  find_package(CUDAToolkit QUIET)
  find_path(${name}_INCLUDE_DIR ${header} HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(${name}_LIBRARY ${library} PATH_SUFFIXES lib64 lib
    HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_TARGET_DIR})
  find_package_handle_standard_args(${name} REQUIRED_VARS ${name}_LIBRARY ${name}_INCLUDE_DIR)
  if(${name}_FOUND AND NOT TARGET ${name}::${name})
    add_library(${name}::${name} UNKNOWN IMPORTED)
    set_target_properties(${name}::${name} PROPERTIES
      IMPORTED_LOCATION "${${name}_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${${name}_INCLUDE_DIR}")
  endif()
endmacro()
