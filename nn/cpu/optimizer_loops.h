// The inner loops of the optimizers on CPU, compiled for several instruction sets. No threads, no
// allocation; pointers do not overlap.
#pragma once

#include <cstdint>

namespace dlaunch::nn::cpu {

/// With d = g + decay p:   p -= rate d.
void sgd_plain(std::int64_t count, float rate, float decay, const float* g, float* p);
/// v = momentum v + d,   p -= rate v.
void sgd_momentum(std::int64_t count, float rate, float decay, float momentum, const float* g,
                  float* v, float* p);
/// v = momentum v + d,   p -= rate (d + momentum v).
void sgd_nesterov(std::int64_t count, float rate, float decay, float momentum, const float* g,
                  float* v, float* p);

struct AdamFactors {
  float keep = 1;   // of the parameter
  float decay = 0;  // of the parameter, in the gradient
  float beta1 = 0;
  float beta2 = 0;
  float rate = 0;        // corrected
  float root_scale = 1;  // of sqrt(s)
  float eps = 0;
};
/// p = keep p;  d = g + decay p;  m, s as in optimizer_kernels.h;
/// p -= rate m / (root_scale sqrt(s) + eps).
void adam(std::int64_t count, const AdamFactors& factors, const float* g, float* m, float* s,
          float* p);

double sum_of_squares(std::int64_t count, const float* x);

}  // namespace dlaunch::nn::cpu
