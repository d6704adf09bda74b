#include "nn/cuda/device_timer.h"

#include <cuda_runtime_api.h>

#include "nn/cuda/check.h"

namespace dlaunch::nn {
namespace {

class Event {
 public:
  Event() { cuda::check(cudaEventCreate(&event_), "timer"); }
  ~Event() { cuda::ignore(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class EventTimer final : public DeviceTimer {
 public:
  explicit EventTimer(cudaStream_t stream) : stream_(stream) {}

  void start() override { cuda::check(cudaEventRecord(begin_.get(), stream_), "timer"); }
  void stop() override { cuda::check(cudaEventRecord(end_.get(), stream_), "timer"); }
  double seconds() override {
    constexpr double kMilli = 1e-3;
    float milliseconds = 0;
    cuda::check(cudaEventSynchronize(end_.get()), "timer");
    cuda::check(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "timer");
    return kMilli * static_cast<double>(milliseconds);
  }

 private:
  const cudaStream_t stream_;
  Event begin_;
  Event end_;
};

}  // namespace

std::unique_ptr<DeviceTimer> make_device_timer(CUstream_st* stream) {
  return std::make_unique<EventTimer>(stream);
}

}  // namespace dlaunch::nn
