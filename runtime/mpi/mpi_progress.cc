#include "runtime/mpi/mpi_progress.h"

#include <string>
#include <system_error>
#include <utility>

#include "runtime/mpi/mpi_wait.h"

namespace dlaunch {

Status result_of(MpiOperation& operation) {
  Status status = operation.status;
  if (status.ok() && operation.finish) status = operation.finish();
  return status.ok() ? status : status.within(operation.name());
}

Work MpiProgress::submit(std::unique_ptr<MpiOperation> operation) {
  operation->outcome = std::make_shared<Outcome>();
  Work work(operation->outcome);
  const std::scoped_lock lock(mutex_);
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    end(std::move(operation),
        Status(StatusCode::kIo, std::string("cannot start the progress thread: ") + error.what()));
    return work;
  }
  submitted_.push_back(std::move(operation));
  changed_.notify_one();
  return work;
}

void MpiProgress::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  const Status closed(StatusCode::kAborted, "the communicator was destroyed");
  for (auto* operations : {&in_flight_, &submitted_}) {
    for (auto& operation : *operations) {
      const std::string name = operation->name();
      end(std::move(operation), closed.within(name));
    }
    operations->clear();
  }
}

void MpiProgress::run() {
  MpiPatience patience;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (!take_submitted(lock)) return;
    }
    if (drive_all()) {
      patience.renew();
    } else {
      if (patience.look_around()) listen_();
      patience.pause();
    }
  }
}

// Waits while there is nothing to do. False when the communicator is being destroyed.
bool MpiProgress::take_submitted(std::unique_lock<std::mutex>& lock) {
  if (in_flight_.empty()) {
    changed_.wait(lock, [this] { return stopping_ || !submitted_.empty(); });
  }
  for (auto& operation : submitted_) in_flight_.push_back(std::move(operation));
  submitted_.clear();
  return !stopping_;
}

// True if an operation has ended.
bool MpiProgress::drive_all() {
  bool ended = false;
  for (auto& operation : in_flight_) {
    if (operation->test()) {
      Status status = result_of(*operation);
      if (!status.ok()) on_failure_(status);
      end(std::move(operation), std::move(status));
    } else if (failure_.failed()) {
      Status status = failure_.status().within_once(operation->name());
      end(std::move(operation), std::move(status));
    } else if (operation->late()) {
      Status status = Status(StatusCode::kTimeout, "timed out").within(operation->name());
      on_failure_(status);
      end(std::move(operation), std::move(status));
    } else {
      continue;
    }
    ended = true;
  }
  std::erase_if(in_flight_, [](const auto& operation) { return operation == nullptr; });
  return ended;
}

void MpiProgress::end(std::unique_ptr<MpiOperation> operation, Status status) {
  const auto outcome = operation->outcome;
  if (operation->withdraw()) {
    operation.reset();
  } else {
    library_.abandon(std::move(operation));
  }
  outcome->set(std::move(status));
}

}  // namespace dlaunch
