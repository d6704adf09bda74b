#include "launcher/job/job_end.h"

#include "runtime/base/exit_codes.h"

namespace dlaunch {
namespace {

int exit_code_of(StatusCode code) {
  switch (code) {
    case StatusCode::kNotFound:
      return kLauncherNotFound;
    case StatusCode::kInvalidArgument:
      return kLauncherNotExecutable;
    default:
      return kLauncherFailure;
  }
}

}  // namespace

JobEnd JobEnd::not_launched(const Status& why) {
  return {.exit_code = exit_code_of(why.code()), .error = why.to_string()};
}

}  // namespace dlaunch
