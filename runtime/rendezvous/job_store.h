// A rank's way to the store of its job.
#pragma once

#include <memory>

#include "runtime/base/activity.h"
#include "runtime/base/deadline.h"
#include "runtime/base/job_environment.h"
#include "runtime/base/status.h"
#include "runtime/rendezvous/tcp_store.h"

namespace dlaunch {

/// Connects to the store that dlaunch hosts for the job; keys are those of this attempt. What the
/// rank waits for there is shown in dlaunch's hang reports. kUnavailable without dlaunch, else as
/// TcpStore::connect.
Result<std::unique_ptr<TcpStore>> connect_job_store(const JobEnvironment& job, Deadline deadline);

/// The same for those who have opened the job's activity already (nullptr: there is none).
Result<std::unique_ptr<TcpStore>> connect_job_store(const JobEnvironment& job,
                                                    std::shared_ptr<Activity> activity,
                                                    Deadline deadline);

}  // namespace dlaunch
