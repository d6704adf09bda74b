// What the kernel tells of a process at this moment, in /proc/PID/stat. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dlaunch {

struct ProcessStat {
  char state = '?';  // R: running, S: sleeping, Z: a zombie, and others, as proc(5) lists them
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  bool exiting = false;               // it is on its way out, or out
  std::uint64_t processor_ticks = 0;  // that all its threads together have had
  std::uint64_t started = 0;          // clock ticks since the machine did
};

/// Nothing if there is no such process, or no longer: one that is reaped while it is looked at is
/// the ordinary case for who watches processes end.
std::optional<ProcessStat> read_process_stat(pid_t pid);
/// The same of its opened file, from the beginning of which nothing has been read yet.
std::optional<ProcessStat> read_process_stat_from(int stat_file);

/// How long this process has been there, in seconds, to a hundredth: with the time before main(),
/// in which libraries are loaded. 0 if it cannot be told.
double seconds_since_process_start();

/// "running", "sleeping", "waiting for a device", "stopped by a signal", "being traced", "a
/// zombie", or "gone".
std::string_view process_state(pid_t pid);

/// Who traces it: "gdb (pid 4711)"; empty if nobody does.
std::string tracer_of(pid_t pid);

}  // namespace dlaunch
