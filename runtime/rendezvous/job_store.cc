#include "runtime/rendezvous/job_store.h"

#include <utility>

namespace dlaunch {

Result<std::unique_ptr<TcpStore>> connect_job_store(const JobEnvironment& job, Deadline deadline) {
  return connect_job_store(job, Activity::open(job.activity, job.local_rank), deadline);
}

Result<std::unique_ptr<TcpStore>> connect_job_store(const JobEnvironment& job,
                                                    std::shared_ptr<Activity> activity,
                                                    Deadline deadline) {
  if (!job.launched()) {
    return Status(StatusCode::kUnavailable, "there is no store: dlaunch has not started this");
  }
  auto store = TcpStore::connect(job.store_address, job.token, deadline, job.store_prefix);
  if (!store.ok()) return store.status().within("rendezvous store at " + job.store_address);
  (*store)->publish_waits(std::move(activity));
  (*store)->limit_answers(job.timeout);
  return store;
}

}  // namespace dlaunch
