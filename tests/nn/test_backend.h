// The backend that tests of nn run on: the CPU's, or with DLAUNCH_TEST_DEVICE=cuda in the
// environment the one of the first CUDA device. Where there is none, a program that contains
// test_backend.cc skips all its tests and says why.
#pragma once

#include <memory>

#include "nn/core/backend.h"

namespace dlaunch::nn {

std::unique_ptr<Backend> make_test_backend();

}  // namespace dlaunch::nn
