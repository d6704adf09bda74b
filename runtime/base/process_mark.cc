#include "runtime/base/process_mark.h"

#include <pthread.h>

namespace dlaunch {

ProcessMark::ProcessMark() {
  // Once; it fails only without memory, and then children are not told apart.
  [[maybe_unused]] static const int kRegistered =
      ::pthread_atfork(nullptr, nullptr, [] { ++current; });
  mark_ = current.load();
}

}  // namespace dlaunch
