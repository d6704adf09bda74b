// The lines are those of Linux 6.18, for programs that did what the test is called after.
#include "launcher/failure/kernel_fault.h"

#include <string>

#include <gtest/gtest.h>

namespace dlaunch::testing {
namespace {

TEST(KernelFault, IsANullPointer) {
  EXPECT_EQ(kernel_fault("segv[9839]: segfault at 0 ip 000055b68ca9a1c6 sp 00007ffc3ff7f3c0 error "
                         "6 in segv[11c6,55b68ca9a000+1000] likely on CPU 1 (core 1, socket 0)",
                         9839),
            "a null pointer (address 0x0), in segv+0x11c6");
}

TEST(KernelFault, IsAStackThatIsUsedUp) {
  EXPECT_EQ(kernel_fault("segv[9840]: segfault at 7ffc40ec5e14 ip 000055a25d71d181 sp "
                         "00007ffc40ec5ad0 error 6 in segv[1181,55a25d71d000+1000] likely on CPU 1 "
                         "(core 1, socket 0)",
                         9840),
            "the stack is used up (address 0x7ffc40ec5e14), in segv+0x1181");
}

TEST(KernelFault, IsAPointerThatIsWrong) {
  EXPECT_EQ(kernel_fault("segv[9847]: segfault at 560684a651a0 ip 0000560684a65208 sp "
                         "00007ffc4d1018b0 error 7 in segv[1208,560684a65000+1000] likely on CPU 1 "
                         "(core 1, socket 0)",
                         9847),
            "a bad pointer (address 0x560684a651a0), in segv+0x1208");
  EXPECT_EQ(kernel_fault("traps: segv[9844] general protection fault ip:5609018951e4 "
                         "sp:7fff6e576510 error:0 in segv[11e4,560901895000+1000]",
                         9844),
            "a bad pointer, in segv+0x11e4");
}

TEST(KernelFault, IsAJumpToWhereNoProgramIs) {
  EXPECT_EQ(kernel_fault("segv[9841]: segfault at 1234567 ip 0000000001234567 sp 00007ffcdc4c7598 "
                         "error 14 likely on CPU 1 (core 1, socket 0)",
                         9841),
            "a bad pointer (address 0x1234567)");
}

TEST(KernelFault, IsATrap) {
  EXPECT_EQ(kernel_fault("traps: segv[9843] trap invalid opcode ip:56316524d257 sp:7fff5e591500 "
                         "error:0 in segv[1257,56316524d000+1000]",
                         9843),
            "in segv+0x1257");
}

TEST(KernelFault, HasNoPlaceInOlderKernels) {
  EXPECT_EQ(kernel_fault("my [1] app[7]: segfault at 10 ip 00007f1 sp 00007ffc3ff7f3c0 error 4 in "
                         "libc-2.31.so[7f0d7c0e5000+178000]",
                         7),
            "a null pointer (address 0x10), in libc-2.31.so");
}

TEST(KernelFault, IsNothingElse) {
  const std::string line =
      "segv[9839]: segfault at 0 ip 0000 sp 00007ffc error 6 in segv[11c6,0+1]";
  EXPECT_NE(kernel_fault(line, 9839), "");
  EXPECT_EQ(kernel_fault(line, 983), "");
  EXPECT_EQ(kernel_fault(line, 839), "");
  for (const char* other :
       {"", "[7]", "app[7]: segfault at ", "app[7]: segfault at x sp y", "app[7] trap", "[7] trap ",
        "app[7]: segfault at 0 ip 0", "Out of memory: Killed process 7 (app)", "app[7]: hello"})
    EXPECT_EQ(kernel_fault(other, 7), "") << other;
}

}  // namespace
}  // namespace dlaunch::testing
