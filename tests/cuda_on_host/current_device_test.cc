// The guard of the thread's device, and what is said in the driver's words.
#include <thread>

#include <gtest/gtest.h>

#include "runtime/cuda/cuda_status.h"
#include "runtime/cuda/driver.h"

namespace dlaunch {
namespace {

void use_the_device() {
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 100), cudaSuccess);
  EXPECT_NE(current_context(), nullptr) << "the runtime makes one";
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST(CurrentDevice, LeavesAThreadWithoutAContextWithNone) {
  std::thread([] {
    ASSERT_EQ(current_context(), nullptr);
    for (int i = 0; i < 2; ++i) {
      const CurrentDevice current(0);
      EXPECT_NE(current_context(), nullptr);
      use_the_device();
    }
    EXPECT_EQ(current_context(), nullptr);
  }).join();
}

TEST(CurrentDevice, LeavesAThreadTheContextThatItHad) {
  std::thread([] {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    const CUcontext before = current_context();
    ASSERT_NE(before, nullptr);
    {
      const CurrentDevice current(0);
      use_the_device();
    }
    EXPECT_EQ(current_context(), before);
  }).join();
}

TEST(DriverStatus, NamesTheError) {
  EXPECT_TRUE(driver_status(CUDA_SUCCESS, "cuStreamBatchMemOp").ok());
  EXPECT_EQ(driver_status(CUDA_ERROR_NOT_SUPPORTED, "cuStreamBatchMemOp").to_string(),
            "cuStreamBatchMemOp: CUDA_ERROR_NOT_SUPPORTED");
  EXPECT_EQ(driver_status(static_cast<CUresult>(5), "cuStreamBatchMemOp").to_string(),
            "cuStreamBatchMemOp: error 5");
}

}  // namespace
}  // namespace dlaunch
