#include "runtime/comm/bystanders.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

namespace dlaunch {

std::vector<pid_t> threads_of_process() {
  std::vector<pid_t> threads;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/task", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    threads.push_back(static_cast<pid_t>(std::stol(entry->path().filename().string())));
  }
  return error ? std::vector<pid_t>() : threads;
}

void Bystanders::add(pid_t thread) {
  const std::scoped_lock lock(mutex_);
  threads_.insert(thread);
}

void Bystanders::remove(pid_t thread) {
  const std::scoped_lock lock(mutex_);
  threads_.erase(thread);
}

bool Bystanders::nobody_but(pid_t thread) const {
  if (thread == kNoThread) return false;
  if (thread == kThisThread) thread = ::gettid();
  const std::vector<pid_t> all = threads_of_process();
  const std::scoped_lock lock(mutex_);
  return !all.empty() && std::ranges::all_of(all, [&](pid_t each) {
    return each == thread || threads_.contains(each);
  });
}

Bystanders::Stay::Stay(Bystanders& all) : all_(all) {
  all_.add(::gettid());
}

Bystanders::Stay::~Stay() {
  all_.remove(::gettid());
}

}  // namespace dlaunch
