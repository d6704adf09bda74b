#include "runtime/base/process_stat.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "runtime/base/descriptor.h"

namespace dlaunch {
namespace {

// "pid (name) state ppid ..."; numbers of the fields as in proc(5).
constexpr int kState = 3;
constexpr int kParent = 4;
constexpr int kGroup = 5;
constexpr int kSession = 6;
constexpr int kFlags = 9;
constexpr int kUserTime = 14;
constexpr int kSystemTime = 15;
constexpr int kStartTime = 22;

constexpr unsigned kExiting = 0x4;  // PF_EXITING of the kernel's sched.h

// From the beginning of a field to the end of the line; empty if there is none. The name may
// contain anything, also newlines, so the last ')' ends it.
std::string_view from_field(std::string_view stat, int field) {
  std::size_t at = stat.rfind(')');
  for (int blanks = field - kState + 1; blanks > 0 && at != std::string_view::npos; --blanks) {
    at = stat.find(' ', at + 1);
  }
  return at == std::string_view::npos ? std::string_view() : stat.substr(at + 1);
}

template <typename Number>
bool read_number(std::string_view text, Number& number) {
  return std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc();
}

}  // namespace

std::optional<ProcessStat> read_process_stat_from(int stat_file) {
  // Longer than the fifty-two numbers can be. A stream would not do: some of its ways to read throw
  // if the process goes after its file was opened (ESRCH).
  std::array<char, 4096> content{};
  const ssize_t length = read(stat_file, content.data(), content.size());
  if (length <= 0) return std::nullopt;
  const std::string_view text(content.data(), static_cast<std::size_t>(length));
  const std::string_view state = from_field(text, kState);
  ProcessStat stat;
  unsigned flags = 0;
  std::uint64_t user = 0;
  std::uint64_t system = 0;
  if (state.empty() || !read_number(from_field(text, kParent), stat.parent) ||
      !read_number(from_field(text, kGroup), stat.group) ||
      !read_number(from_field(text, kSession), stat.session) ||
      !read_number(from_field(text, kFlags), flags) ||
      !read_number(from_field(text, kUserTime), user) ||
      !read_number(from_field(text, kSystemTime), system) ||
      !read_number(from_field(text, kStartTime), stat.started)) {
    return std::nullopt;
  }
  stat.state = state.front();
  stat.exiting = (flags & kExiting) != 0;
  stat.processor_ticks = user + system;
  return stat;
}

std::optional<ProcessStat> read_process_stat(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return std::nullopt;
  return read_process_stat_from(file.get());
}

double seconds_since_process_start() {
  const auto stat = read_process_stat(getpid());
  timespec since_boot{};
  if (!stat || clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0) return 0;
  const double now =
      static_cast<double>(since_boot.tv_sec) + 1e-9 * static_cast<double>(since_boot.tv_nsec);
  const double then =
      static_cast<double>(stat->started) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return std::max(0.0, now - then);
}

std::string_view process_state(pid_t pid) {
  const auto stat = read_process_stat(pid);
  if (!stat) return "gone";
  switch (stat->state) {
    case 'R':
      return "running";
    case 'D':
      return "waiting for a device";
    case 'T':
      return "stopped by a signal";
    case 't':
      return "being traced";
    case 'Z':
    case 'X':
      return "a zombie";
    default:
      return "sleeping";
  }
}

std::string tracer_of(pid_t pid) {
  const std::string heading = "TracerPid:\t";
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(status, line) && !line.starts_with(heading)) {
  }
  const std::string tracer = status ? line.substr(heading.size()) : "0";
  if (tracer == "0") return "";
  std::string name;
  std::ifstream("/proc/" + tracer + "/comm") >> name;
  return name + " (pid " + tracer + ")";
}

}  // namespace dlaunch
