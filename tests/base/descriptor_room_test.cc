#include "runtime/base/descriptor_room.h"

#include <sys/resource.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

TEST(DescriptorRoom, CountsWhatIsOpen) {
  const DescriptorRoom before = descriptor_room();
  const int descriptor = ::dup(STDERR_FILENO);
  EXPECT_EQ(descriptor_room().open, before.open + 1);
  EXPECT_EQ(descriptor_room().left(), before.left() - 1);
  ::close(descriptor);
  EXPECT_EQ(descriptor_room().open, before.open);
}

/// In a process of its own, whose limits are not raised again.
[[noreturn]] void use_all_up() {
  const auto most = static_cast<rlim_t>(descriptor_room().open + 4);
  const rlimit low{.rlim_cur = most, .rlim_max = most};
  if (::setrlimit(RLIMIT_NOFILE, &low) != 0) ::_exit(2);
  int last = -1;
  for (int next = 0; next >= 0; next = ::dup(STDERR_FILENO)) last = next;
  const int none = descriptor_room().left();
  ::close(last);
  const int one = descriptor_room().left();
  ::_exit(none == 0 && one == 1 ? 0 : 1);
}

TEST(DescriptorRoom, IsNoneWhereNoneIsLeftToLookForThem) {
  EXPECT_EXIT(use_all_up(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace dlaunch
