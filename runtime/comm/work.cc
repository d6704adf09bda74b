#include "runtime/comm/work.h"

#include <utility>

#include "runtime/comm/outcome.h"

namespace dlaunch {

Work Work::finished(Status status) {
  auto outcome = std::make_shared<Outcome>();
  outcome->set(std::move(status));
  return Work(std::move(outcome));
}

}  // namespace dlaunch
