// doctor: what ranks of one machine share, and what dlaunch can make use of.
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <system_error>

#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/doctor/doctor.h"
#include "launcher/ranks/gpus.h"
#include "launcher/ranks/program_search.h"
#include "launcher/supervision/descendants.h"
#include "runtime/base/descriptor.h"

namespace dlaunch {
namespace {

constexpr std::uint64_t kMebi = 1 << 20;
constexpr std::uint64_t kEnoughSharedMemory = 256 * kMebi;

Finding memory_files() {
  const Descriptor file(static_cast<int>(memfd_create("dlaunch", MFD_CLOEXEC)));
  const bool works = file.is_open() && ftruncate(file.get(), 1 << 16) == 0;
  return {.good = works,
          .subject = "memfd",
          .text = works ? "works; ranks of a host share memory through it"
                        : std::generic_category().message(errno),
          .advice = "ranks talk over TCP instead: allow memfd_create (seccomp profile)"};
}

// Our runtime does without; others (NCCL, Gloo's users, Python's multiprocessing) need it.
Finding shared_memory_folder() {
  struct statvfs info {};
  const bool there = statvfs("/dev/shm", &info) == 0 && access("/dev/shm", W_OK) == 0;
  const std::uint64_t room = there ? std::uint64_t{info.f_bavail} * info.f_frsize : 0;
  return {.good = room >= kEnoughSharedMemory,
          .subject = "/dev/shm",
          .text = there ? std::to_string(room / kMebi) + " MiB free" : "not there or not writable",
          .advice =
              "dlaunch's own runtime does without, NCCL and data loaders do not: docker run "
              "--shm-size=1g"};
}

// Whether a process may read the memory of one that is not its child, as ranks do with each other.
bool can_read_a_stranger() {
  const volatile int secret = 42;
  const pid_t parent = getpid();
  const pid_t reader = fork();
  if (reader == 0) {
    int copy = 0;
    iovec local{.iov_base = &copy, .iov_len = sizeof(copy)};
    iovec remote{.iov_base = const_cast<int*>(&secret), .iov_len = sizeof(copy)};
    const bool read = process_vm_readv(parent, &local, 1, &remote, 1, 0) == sizeof(copy);
    _exit(read && copy == 42 ? 0 : 1);
  }
  int status = 1;
  return reader > 0 && waitpid(reader, &status, 0) == reader && status == 0;
}

Finding others_memory() {
  int scope = 0;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  const bool works = can_read_a_stranger();
  return {.good = works,
          .subject = "process_vm_readv",
          .text = works ? "ranks may read each other's memory"
                        : "refused (kernel.yama.ptrace_scope is " + std::to_string(scope) + ")",
          .advice =
              "large messages are copied twice instead of once: sysctl "
              "kernel.yama.ptrace_scope=0, or docker run --cap-add SYS_PTRACE"};
}

Finding process_files() {
  const bool shown = can_find_descendants();
  return {.good = shown,
          .subject = "/proc",
          .text = shown ? "shows this machine's processes"
                        : "not mounted, or that of another PID namespace",
          .advice =
              "dlaunch starts no ranks without, for it would not find what they leave behind: "
              "mount -t proc proc /proc, or unshare --mount-proc"};
}

Finding process_descriptors() {
  const Descriptor own(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  return {.good = own.is_open(),
          .subject = "pidfd",
          .text = own.is_open() ? "works" : std::generic_category().message(errno),
          .advice = "dlaunch cannot watch ranks without: Linux 5.9 or newer is needed"};
}

Finding gpus() {
  const auto found = visible_gpus();
  std::string text = found.empty() ? "none" : std::to_string(found.size()) + " visible";
  if (!found.empty()) text += ", so --nproc auto is " + std::to_string(found.size());
  return {.good = true, .subject = "GPUs", .text = text, .advice = {}};
}

Finding debuggers() {
  for (const char* name : {"gdb", "eu-stack"}) {
    const auto path = find_program(name);
    if (const auto* found = std::get_if<std::string>(&path)) {
      return {.good = true, .subject = "stacks of hung ranks", .text = *found, .advice = {}};
    }
  }
  return {
      .good = false,
      .subject = "stacks of hung ranks",
      .text = "neither gdb nor eu-stack is installed",
      .advice = "hang reports will say what ranks wait for, but not where: apt-get install gdb"};
}

}  // namespace

std::vector<Finding> examine_machine() {
  return {process_files(), process_descriptors(),  memory_files(),
          others_memory(), shared_memory_folder(), gpus(),
          debuggers()};
}

}  // namespace dlaunch
