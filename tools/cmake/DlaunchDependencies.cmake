# Everything the build needs, each from the system's packages or from CMAKE_PREFIX_PATH
# (tools/offline_prefix fills such a folder).
find_package(Threads REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Asio REQUIRED)    # tools/cmake/FindAsio.cmake
find_package(sodium REQUIRED)  # tools/cmake/Findsodium.cmake
find_package(GTest REQUIRED)   # dlaunch::testing, a public part, is built on it
if(DLAUNCH_NN)
  find_package(OneDNN 2.6 REQUIRED)  # tools/cmake/FindOneDNN.cmake
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  find_package(Eigen3 3.3 REQUIRED NO_MODULE)  # headers only
  find_package(Stb REQUIRED)   # tools/cmake/FindStb.cmake
endif()
if(DLAUNCH_CUDA)
  include(DlaunchCuda)
endif()
