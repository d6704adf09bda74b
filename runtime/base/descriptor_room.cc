#include "runtime/base/descriptor_room.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>

namespace dlaunch {

DescriptorRoom descriptor_room() {
  constexpr rlim_t kMost = std::numeric_limits<int>::max();
  rlimit limit{.rlim_cur = kMost, .rlim_max = kMost};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  DescriptorRoom room{.limit = static_cast<int>(std::min(limit.rlim_max, kMost))};
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  if (error == std::errc::too_many_files_open)
    room.open = static_cast<int>(std::min(limit.rlim_cur, limit.rlim_max));
  if (error) return room;
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int descriptor = room.limit;
    std::from_chars(name.data(), name.data() + name.size(), descriptor);
    if (descriptor < room.limit) ++room.open;
  }
  --room.open;  // that of the iterator itself
  return room;
}

std::int64_t raise_descriptor_limit(std::int64_t enough) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t wanted = std::min(limit.rlim_max, static_cast<rlim_t>(enough));
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  constexpr rlim_t kMost = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(std::min(limit.rlim_cur, kMost));
}

}  // namespace dlaunch
