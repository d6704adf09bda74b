// How a thread passes the time between two looks at MPI, which has no wait with a deadline: at
// first it only lets others run, then it sleeps a little each time. One thread per object.
#pragma once

#include <chrono>
#include <thread>

namespace dlaunch {

class MpiPatience {
 public:
  /// Something has happened: begin again.
  void renew() { looks_ = 0; }
  void pause() {
    if (++looks_ < kEagerLooks) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  /// Now and then: time to look at what is not urgent.
  bool look_around() const { return looks_ % 16 == 15 || looks_ >= kEagerLooks; }

 private:
  static constexpr int kEagerLooks = 4'000;
  int looks_ = 0;
};

}  // namespace dlaunch
