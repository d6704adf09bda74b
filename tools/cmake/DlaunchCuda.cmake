# What the CUDA parts need, all of it or a clear error. Makes CUDA::*, cuDNN::cuDNN and NCCL::NCCL.
set(missing "")
find_package(CUDAToolkit 12 QUIET)
if(NOT CUDAToolkit_FOUND)
  string(APPEND missing "\n  CUDA Toolkit 12 or newer (nvcc in PATH, or -DCUDAToolkit_ROOT=DIR)")
endif()

# find_cuda_library(NAME HEADER LIBRARY) -> NAME::NAME, or a line in `missing`
macro(find_cuda_library name header library)
  find_path(${name}_INCLUDE_DIR ${header} HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(${name}_LIBRARY ${library} HINTS ${CUDAToolkit_LIBRARY_DIR})
  if(${name}_INCLUDE_DIR AND ${name}_LIBRARY)
    add_library(${name}::${name} UNKNOWN IMPORTED)
    set_target_properties(${name}::${name} PROPERTIES
      IMPORTED_LOCATION "${${name}_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${${name}_INCLUDE_DIR}")
  else()
    string(APPEND missing "\n  ${name} (${header} and lib${library}; -D${name}_INCLUDE_DIR=, -D${name}_LIBRARY=)")
  endif()
endmacro()
find_cuda_library(cuDNN cudnn.h cudnn)
find_cuda_library(NCCL nccl.h nccl)

if(missing)
  message(FATAL_ERROR "DLAUNCH_CUDA is ON, but this was not found:${missing}\n"
                      "Install it, or configure without the CUDA parts: -DDLAUNCH_CUDA=OFF")
endif()
message(STATUS "CUDA: toolkit ${CUDAToolkit_VERSION}, cuDNN ${cuDNN_LIBRARY}, NCCL ${NCCL_LIBRARY}")
message(WARNING "There is no CUDA code in this version yet: the build runs on CPU only.")
