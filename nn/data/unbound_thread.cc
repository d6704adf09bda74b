#include "nn/data/unbound_thread.h"

#include <omp.h>
#include <sched.h>

#include <cstddef>
#include <vector>

namespace dlaunch::nn {

void leave_place() {
  if (omp_get_proc_bind() == omp_proc_bind_false) return;
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> numbers(static_cast<std::size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, numbers.data());
    for (const int number : numbers) {
      if (number < CPU_SETSIZE) CPU_SET(number, &all);
    }
  }
  if (CPU_COUNT(&all) > 0) (void)::sched_setaffinity(0, sizeof all, &all);  // else it is slower
}

}  // namespace dlaunch::nn
