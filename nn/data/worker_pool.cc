#include "nn/data/worker_pool.h"

#include <utility>

#include "nn/data/unbound_thread.h"

namespace dlaunch::nn {

WorkerPool::WorkerPool(std::size_t workers) {
  try {
    for (std::size_t worker = 1; worker < workers; ++worker)
      threads_.push_back(start_unbound_thread([this, worker] { serve(worker); }));
  } catch (...) {
    stop();
    throw;
  }
}

WorkerPool::~WorkerPool() {
  stop();
}

void WorkerPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::run(std::size_t count, const Task& task) {
  {
    const std::lock_guard lock(mutex_);
    task_ = &task;
    count_ = count;
    next_ = 0;
    working_ = threads_.size();
    ++loops_;
  }
  changed_.notify_all();
  work(0);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return working_ == 0; });
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
}

void WorkerPool::serve(std::size_t worker) {
  for (std::size_t done = 0;; ++done) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || loops_ > done; });
      if (stopped_) return;
    }
    work(worker);
    {
      const std::lock_guard lock(mutex_);
      --working_;
    }
    changed_.notify_all();
  }
}

/// Indices are handed out in ascending order: when one fails, all before it have been.
void WorkerPool::work(std::size_t worker) {
  for (std::size_t index = next_++; index < count_; index = next_++) {
    try {
      (*task_)(worker, index);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (error_ == nullptr || index < failed_index_) {
        error_ = std::current_exception();
        failed_index_ = index;
      }
      next_ = count_;
    }
  }
}

}  // namespace dlaunch::nn
