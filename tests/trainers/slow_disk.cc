// Loaded before a program starts (LD_PRELOAD): flushing a file to the disk whose path has
// SLOW_DISK_FILE in it takes twelve seconds, and says so on stderr.
#include <linux/limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

extern "C" int fsync(int descriptor) {
  std::array<char, PATH_MAX> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  const char* slow = std::getenv("SLOW_DISK_FILE");  // NOLINT(concurrency-mt-unsafe): never changed
  if (length > 0 && slow != nullptr &&
      std::string_view(path.data(), static_cast<std::size_t>(length)).find(slow) !=
          std::string_view::npos) {
    std::this_thread::sleep_for(std::chrono::seconds(12));
    std::fputs("the disk was slow\n", stderr);
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}
