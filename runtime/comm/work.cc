#include "runtime/comm/work.h"

#include <utility>

#include "runtime/comm/outcome.h"

namespace dlaunch {

Work Work::finished(Status status) {
  auto outcome = std::make_shared<Outcome>();
  outcome->set(std::move(status));
  return Work(std::move(outcome));
}

Status wait_all(std::span<Work> works) {
  Status first;
  for (Work& work : works) {
    Status status = work.wait();
    if (first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace dlaunch
