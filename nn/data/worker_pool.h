// WorkerPool: a few threads that share the elements of a loop, for work whose results do not depend
// on which thread does it.
//
// run() is called by one thread at a time, which works too. Threads live as long as the pool and
// sleep between two loops.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace dlaunch::nn {

class WorkerPool {
 public:
  /// So many, the one that calls run() among them; at least 1. Throws std::system_error if the
  /// system does not give that many.
  explicit WorkerPool(std::size_t workers);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  std::size_t size() const { return threads_.size() + 1; }

  /// `worker`, below size(), tells apart what runs at the same time.
  using Task = std::function<void(std::size_t worker, std::size_t index)>;
  /// Calls task(worker, index) for each index below `count`, and returns when all have ended. If
  /// some of them throw, no further ones are begun, and what the first by its index threw is
  /// thrown: the same exception for any number of workers.
  void run(std::size_t count, const Task& task);

 private:
  void stop();
  void serve(std::size_t worker);
  void work(std::size_t worker);

  // Of the loop that is going on. Written while all threads sleep.
  const Task* task_ = nullptr;
  std::size_t count_ = 0;
  std::atomic<std::size_t> next_ = 0;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::size_t loops_ = 0;    // that were begun
  std::size_t working_ = 0;  // threads that have not ended the last of them
  std::size_t failed_index_ = 0;
  std::exception_ptr error_;
  bool stopped_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace dlaunch::nn
