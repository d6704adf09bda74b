# NCCL -> NCCL::NCCL
include("${CMAKE_CURRENT_LIST_DIR}/DlaunchFindCudaLibrary.cmake")
dlaunch_find_cuda_library(NCCL nccl.h nccl)
