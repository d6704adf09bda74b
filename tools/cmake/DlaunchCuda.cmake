# What the CUDA parts need, all of it or a clear error: the CUDA language, CUDA::*, cuDNN::cuDNN and NCCL::NCCL.
# dlaunch_cuda_library(NAME SOURCES...) makes a library of *.cu and *.cc files.
set(missing "")

# nvcc need not be in PATH.
find_program(DLAUNCH_NVCC nvcc HINTS ${CUDAToolkit_ROOT} ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda
             PATH_SUFFIXES bin)
if(DLAUNCH_NVCC AND NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER "${DLAUNCH_NVCC}")
endif()
# cudaGetDriverEntryPointByVersion is as old as that.
find_package(CUDAToolkit 12.5 QUIET)
if(NOT DLAUNCH_NVCC OR NOT CUDAToolkit_FOUND)
  string(APPEND missing "\n  CUDA Toolkit 12.5 or newer (nvcc in PATH or /usr/local/cuda/bin, or -DCUDAToolkit_ROOT=DIR)")
endif()

# Packages for Python have libraries without the links that are looked for, such as libcublasLt.so.
if(CUDAToolkit_FOUND)
  foreach(library cudart cublasLt)
    if(NOT TARGET CUDA::${library})
      string(APPEND missing "\n  lib${library}.so (-DCUDA_${library}_LIBRARY=)")
    endif()
  endforeach()
  find_path(cuBLASLt_INCLUDE_DIR cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NOT cuBLASLt_INCLUDE_DIR)
    string(APPEND missing "\n  cublasLt.h (-DcuBLASLt_INCLUDE_DIR=)")
  endif()
endif()

foreach(package cuDNN NCCL)
  find_package(${package} QUIET)
  if(NOT ${package}_FOUND)
    string(TOLOWER ${package} name)
    string(APPEND missing
      "\n  ${package} (${name}.h and lib${name}; -D${package}_INCLUDE_DIR=, -D${package}_LIBRARY=)")
  endif()
endforeach()

if(missing)
  message(FATAL_ERROR "DLAUNCH_CUDA is ON, but this was not found:${missing}\n"
                      "Install it, or configure without the CUDA parts: -DDLAUNCH_CUDA=OFF")
endif()

# Machine code for Ampere, Hopper and Blackwell, and for what comes after them PTX that the driver compiles.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real)
  if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
    list(APPEND CMAKE_CUDA_ARCHITECTURES 100)
  else()
    list(APPEND CMAKE_CUDA_ARCHITECTURES 90-virtual)
  endif()
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # as cuDNN and cuBLASLt use it
if(DLAUNCH_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${DLAUNCH_CCACHE}")
endif()
enable_language(CUDA)
message(STATUS "CUDA: toolkit ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}, cuDNN ${cuDNN_LIBRARY}, "
               "NCCL ${NCCL_LIBRARY}")

# dlaunch_cuda_library(NAME SOURCES...): as dlaunch_library(), with CUDA sources. Functions that are constexpr may be
# called from device code. (CMake 3.25 does not know that nvcc knows C++20.) A source at a time: nvcc gains nothing
# from joined ones.
function(dlaunch_cuda_library name)
  dlaunch_library(${name} ${ARGN})
  target_compile_options(dlaunch_${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:
    -std=c++20 --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra
    $<$<BOOL:${DLAUNCH_WARNINGS_ARE_ERRORS}>:-Werror=all-warnings>>)
  target_link_libraries(dlaunch_${name} PUBLIC CUDA::cudart)
  set_target_properties(dlaunch_${name} PROPERTIES UNITY_BUILD OFF CUDA_EXTENSIONS OFF)
endfunction()
