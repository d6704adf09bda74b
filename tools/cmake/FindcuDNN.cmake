# cuDNN -> cuDNN::cuDNN
include("${CMAKE_CURRENT_LIST_DIR}/DlaunchFindCudaLibrary.cmake")
dlaunch_find_cuda_library(cuDNN cudnn.h cudnn)
