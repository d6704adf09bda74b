// What the device has been given to do, in the order in which it was given, whatever the stream.
// Done when somebody waits. While a stream is captured its work goes into a graph instead.
//
// Used by one thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"

namespace dlaunch::cuda_on_host {

using Work = std::function<void()>;

class Queue {
 public:
  void add(cudaStream_t stream, Work work);
  /// Also while streams are captured.
  void add_to_device(Work work) { queued_.push_back(std::move(work)); }
  /// Into the graph of the stream that is captured; no launch.
  void add_to_graph(Work work) { captured_.push_back(std::move(work)); }
  /// Does everything. cudaErrorLaunchFailure if a kernel has a fault; the rest is dropped then.
  cudaError_t drain();

  /// The device's time: the host's, and what work has pretended to take.
  std::chrono::steady_clock::time_point now() const {
    return std::chrono::steady_clock::now() + pretended_;
  }
  /// For work that is to look slow.
  void pass_time(std::chrono::steady_clock::duration time) { pretended_ += time; }

  bool capturing() const { return captured_stream_ != nullptr; }
  void begin_capture(cudaStream_t stream);
  std::vector<Work> end_capture();
  /// Of the last graph: kernels, copies and calls of libraries.
  std::size_t captured_launches() const { return captured_launches_; }

  /// What the kernel did.
  const std::string& fault() const { return fault_; }

 private:
  std::vector<Work> queued_;
  std::vector<Work> captured_;
  std::size_t captured_launches_ = 0;
  cudaStream_t captured_stream_ = nullptr;
  std::string fault_;
  std::chrono::steady_clock::duration pretended_{};
};

/// The device's.
Queue& queue();

}  // namespace dlaunch::cuda_on_host
