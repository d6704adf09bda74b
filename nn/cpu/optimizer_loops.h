// The inner loops of the optimizers on CPU, compiled for several instruction sets. No threads, no
// allocation; pointers do not overlap.
#pragma once

#include <cstdint>

#include "nn/core/optimizer_formulas.h"

namespace dlaunch::nn::cpu {

/// With d = g + decay p:   p -= rate d.
void sgd_plain(std::int64_t count, const SgdFactors& factors, const float* g, float* p);
/// v = momentum v + d,   p -= rate v.
void sgd_momentum(std::int64_t count, const SgdFactors& factors, const float* g, float* v,
                  float* p);
/// v = momentum v + d,   p -= rate (d + momentum v).
void sgd_nesterov(std::int64_t count, const SgdFactors& factors, const float* g, float* v,
                  float* p);

void adam(std::int64_t count, const AdamFactors& factors, const float* g, float* m, float* s,
          float* p);

/// a = kept a + (1 - kept) x.
void move_average(std::int64_t count, float kept, const float* x, float* a);

/// x *= factor; whether all results are finite.
bool scale_and_check(std::int64_t count, float factor, float* x);

double sum_of_squares(std::int64_t count, const float* x);

}  // namespace dlaunch::nn::cpu
