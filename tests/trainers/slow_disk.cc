// Loaded before a program starts (LD_PRELOAD): the first time that rank 0 flushes a file to the
// disk whose path has SLOW_DISK_FILE in it, or reads more of it at once than a header, that takes
// eight seconds, and stderr says so.
#include <linux/limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

namespace {

constexpr std::size_t kMoreThanAHeader = std::size_t{16} << 10;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): never changed
  return value == nullptr ? "" : value;
}

void be_slow_once(int descriptor) {
  static std::atomic<bool> was_slow = false;
  if (was_slow || variable("RANK") != "0") return;
  std::array<char, PATH_MAX> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  if (length <= 0 || std::string_view(path.data(), static_cast<std::size_t>(length))
                             .find(variable("SLOW_DISK_FILE")) == std::string_view::npos)
    return;
  if (was_slow.exchange(true)) return;
  std::this_thread::sleep_for(std::chrono::seconds(8));
  std::fputs("the disk was slow\n", stderr);
}

}  // namespace

extern "C" {

int fsync(int descriptor) {
  be_slow_once(descriptor);
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

ssize_t read(int descriptor, void* bytes, std::size_t count) {
  if (count > kMoreThanAHeader) be_slow_once(descriptor);
  return ::syscall(SYS_read, descriptor, bytes, count);
}

ssize_t pread(int descriptor, void* bytes, std::size_t count, off_t position) {
  if (count > kMoreThanAHeader) be_slow_once(descriptor);
  return ::syscall(SYS_pread64, descriptor, bytes, count, position);
}

}  // extern "C"
